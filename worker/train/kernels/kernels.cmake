# SPDX-License-Identifier: Apache-2.0
# Compiles each kernels/*.cu into libddprun_cuda.so (compile_kernels.cc).
if(NOT DDPRUN_NVRTC_LIBRARY)
  return()
endif()
add_executable(compile_kernels train/kernels/compile_kernels.cc)
target_include_directories(compile_kernels SYSTEM PRIVATE "${DDPRUN_CUDA_INCLUDE_DIR}")
target_link_libraries(compile_kernels PRIVATE ddprun_warnings "${DDPRUN_NVRTC_LIBRARY}")
set_target_properties(compile_kernels PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/kernels)

file(GLOB kernel_headers CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/train/kernels/*.cuh)
file(GLOB kernel_sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/train/kernels/*.cu)
file(MAKE_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/kernels)
foreach(source ${kernel_sources})
  get_filename_component(name ${source} NAME)
  set(out ${CMAKE_CURRENT_BINARY_DIR}/kernels/${name})
  # What NVRTC leaves at its end is no leak of ours.
  add_custom_command(OUTPUT ${out}.cc
    COMMAND ${CMAKE_COMMAND} -E env ASAN_OPTIONS=detect_leaks=0
            $<TARGET_FILE:compile_kernels> ${source} ${PROJECT_SOURCE_DIR} ${out}
    DEPENDS compile_kernels ${source} ${kernel_headers}
    COMMENT "Compiling the kernels of ${name}" VERBATIM)
  target_sources(ddprun_cuda PRIVATE ${out}.cc)
endforeach()
