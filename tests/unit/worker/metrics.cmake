# SPDX-License-Identifier: Apache-2.0
find_package(nlohmann_json REQUIRED)
ddprun_add_gtest(NAME unit_worker_metrics LABEL unit
  SOURCES
    append_file_test.cc
    event_file_test.cc
    metric_series_test.cc
    console_test.cc
    metrics_writer_test.cc
    step_clock_test.cc
    straggler_rule_test.cc
  LIBS ddprun_worker_metrics nlohmann_json::nlohmann_json)

ddprun_add_gtest(NAME unit_worker_profile TORCH LABEL unit
  SOURCES clock_alignment_test.cc trace_test.cc
  LIBS ddprun_worker_profile nlohmann_json::nlohmann_json)

# A run in pieces, for tests/e2e/test_metrics.py.
add_executable(metrics_writer_probe ../../testing/metrics_writer_probe.cc)
target_link_libraries(metrics_writer_probe PRIVATE ddprun_warnings ddprun_worker_metrics)
set_target_properties(metrics_writer_probe PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
