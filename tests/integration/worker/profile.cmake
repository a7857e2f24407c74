# SPDX-License-Identifier: Apache-2.0
ddprun_add_gtest(NAME integration_worker_profile TORCH LABEL integration TIMEOUT 120
  SOURCES gather_test.cc ranks.cc
  LIBS ddprun_worker_profile ddprun_rendezvous_client)

if(TARGET ddprun_cuda)
  # A tool in the place of Nsight Systems.
  add_library(nvtx_recorder MODULE ../../testing/nvtx_recorder.cc)
  target_include_directories(nvtx_recorder SYSTEM PRIVATE
    $<TARGET_PROPERTY:ddprun_torch_cuda,INTERFACE_SYSTEM_INCLUDE_DIRECTORIES>)
  target_link_libraries(nvtx_recorder PRIVATE ddprun_warnings)
  set_target_properties(nvtx_recorder PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  ddprun_add_gtest(NAME integration_worker_nvtx TORCH LABEL integration SOURCES nvtx_test.cc
    LIBS ddprun_worker_profile ${CMAKE_DL_LIBS})
  add_dependencies(integration_worker_nvtx nvtx_recorder)
endif()
