# SPDX-License-Identifier: Apache-2.0
# One precompiled header for every target that includes LibTorch: torch/torch.h alone costs half a minute a file.

# The options that the header is made with and that its users must have, programs (otherwise -fPIE) as well.
add_library(ddprun_torch_options INTERFACE)
target_link_libraries(ddprun_torch_options INTERFACE ddprun_torch)
# ccache needs -fpch-preprocess to see what the header stands for.
target_compile_options(ddprun_torch_options INTERFACE -fPIC $<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess>)

# In a unity build this warning takes the unnamed namespace of a .cc file for that of a header.
target_compile_options(ddprun_torch_options INTERFACE $<$<BOOL:${DDPRUN_UNITY}>:-Wno-subobject-linkage>)

set(torch_pch_source ${CMAKE_CURRENT_BINARY_DIR}/torch_pch.cc)
file(GENERATE OUTPUT ${torch_pch_source} CONTENT "// Carries the precompiled header; has nothing of its own.\n")
add_library(ddprun_torch_pch OBJECT ${torch_pch_source})
target_link_libraries(ddprun_torch_pch PRIVATE ddprun_warnings ddprun_torch_options)
target_precompile_headers(ddprun_torch_pch PRIVATE
  <torch/torch.h> <torch/csrc/distributed/c10d/ProcessGroup.hpp> <torch/csrc/distributed/c10d/Store.hpp>)

# torch/torch.h costs each compilation 12 s of template instantiation, precompiled or not; a unity build pays that once for
# eight files. So two files of one target must not define the same name, not even in unnamed namespaces.
function(ddprun_use_torch_pch target)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${DDPRUN_UNITY} UNITY_BUILD_BATCH_SIZE 8)
  target_link_libraries(${target} PRIVATE ddprun_torch_options)
  target_precompile_headers(${target} REUSE_FROM ddprun_torch_pch)
endfunction()
