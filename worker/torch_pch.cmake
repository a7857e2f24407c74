# SPDX-License-Identifier: Apache-2.0
# One precompiled header for every target that includes LibTorch: torch/torch.h alone costs half a minute a file.

# The options that the header is made with and that its users must have, programs (otherwise -fPIE) as well.
add_library(ddprun_torch_options INTERFACE)
target_link_libraries(ddprun_torch_options INTERFACE ddprun_torch)
# ccache needs -fpch-preprocess to see what the header stands for.
target_compile_options(ddprun_torch_options INTERFACE -fPIC $<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess>)

# In a unity build this warning takes the unnamed namespace of a .cc file for that of a header.
target_compile_options(ddprun_torch_options INTERFACE $<$<BOOL:${DDPRUN_UNITY}>:-Wno-subobject-linkage>)

# What most files of worker/ include. torch/torch.h is not in it: it costs each compilation that has it six seconds.
set(torch_pch_source ${CMAKE_CURRENT_BINARY_DIR}/torch_pch.cc)
file(GENERATE OUTPUT ${torch_pch_source} CONTENT "// Carries the precompiled header; has nothing of its own.\n")
add_library(ddprun_torch_pch OBJECT ${torch_pch_source})
target_link_libraries(ddprun_torch_pch PRIVATE ddprun_warnings ddprun_torch_options)
target_precompile_headers(ddprun_torch_pch PRIVATE
  <ATen/Functions.h> <torch/csrc/autograd/grad_mode.h> <torch/csrc/distributed/c10d/ProcessGroup.hpp>
  <torch/csrc/distributed/c10d/Store.hpp> <torch/nn/module.h>)

# Tests include torch/torch.h, and are compiled once for each time that they run: not optimised.
if(DDPRUN_WITH_TESTS)
  add_library(ddprun_torch_test_options INTERFACE)
  target_link_libraries(ddprun_torch_test_options INTERFACE ddprun_torch_options)
  target_compile_options(ddprun_torch_test_options INTERFACE $<$<CONFIG:RelWithDebInfo>:-O0>)
  add_library(ddprun_torch_test_pch OBJECT ${torch_pch_source})
  target_link_libraries(ddprun_torch_test_pch PRIVATE ddprun_warnings ddprun_torch_test_options GTest::gmock)
  target_precompile_headers(ddprun_torch_test_pch PRIVATE
    <gmock/gmock.h> <gtest/gtest.h> <torch/csrc/distributed/c10d/ProcessGroup.hpp>
    <torch/csrc/distributed/c10d/Store.hpp> <torch/torch.h>)
endif()

# LibTorch's headers cost each compilation seconds of template instantiation, precompiled or not; a unity build pays that once
# for eight files. So two files of one target must not define the same name, not even in unnamed namespaces.
#   ddprun_use_torch_pch(TARGET [TEST])
function(ddprun_use_torch_pch target)
  set(kind torch)
  if("${ARGN}" STREQUAL "TEST")
    set(kind torch_test)
  endif()
  target_link_libraries(${target} PRIVATE ddprun_${kind}_options)
  target_precompile_headers(${target} REUSE_FROM ddprun_${kind}_pch)
  if(DDPRUN_UNITY)
    # At the directory's end, when the properties of all source files are set.
    cmake_language(EVAL CODE "cmake_language(DEFER CALL ddprun_unite_sources [[${target}]])")
  endif()
endfunction()

# Puts a target's files together by eight, but those with compile options or definitions of their own. CMake's UNITY_BUILD
# does the same with absolute includes, which make ccache miss in every other clone.
function(ddprun_unite_sources target)
  get_target_property(sources ${target} SOURCES)
  set(alone "")
  set(together "")
  foreach(source ${sources})
    set(own "")
    foreach(property COMPILE_DEFINITIONS COMPILE_OPTIONS SKIP_UNITY_BUILD_INCLUSION)
      get_source_file_property(value ${source} ${property})
      if(value)
        set(own ON)
      endif()
    endforeach()
    cmake_path(ABSOLUTE_PATH source OUTPUT_VARIABLE file)
    cmake_path(IS_PREFIX PROJECT_BINARY_DIR ${file} is_generated)
    if(own OR is_generated OR NOT source MATCHES "\\.cc$")
      list(APPEND alone ${source})
    else()
      cmake_path(RELATIVE_PATH file BASE_DIRECTORY ${PROJECT_SOURCE_DIR})
      list(APPEND together ${file})
    endif()
  endforeach()
  list(LENGTH together count)
  set(begin 0)
  while(begin LESS count)
    list(SUBLIST together ${begin} 8 batch)
    list(TRANSFORM batch REPLACE "(.+)" "#include \"\\1\"\n")
    list(JOIN batch "" includes)
    set(united ${CMAKE_CURRENT_BINARY_DIR}/${target}_from_${begin}.cc)
    file(CONFIGURE OUTPUT ${united} CONTENT "${includes}" @ONLY)
    list(APPEND alone ${united})
    math(EXPR begin "${begin} + 8")
  endwhile()
  set_target_properties(${target} PROPERTIES SOURCES "${alone}")
endfunction()
