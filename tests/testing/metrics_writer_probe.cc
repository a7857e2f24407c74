// SPDX-License-Identifier: Apache-2.0
// run_log_probe FOLDER STEPS_DONE FIRST LAST VALUE: a run that goes on after STEPS_DONE and records
// VALUE as its loss at the steps FIRST to LAST, for tests/e2e to read.
#include <cstdio>
#include <cstdlib>

#include "worker/train/metrics/metrics_writer.h"

int main(int argc, char** argv) {
  if (argc != 6) return 2;
  ddprun::MetricsWriter log({.directory = argv[1],
                             .tensorboard = true,
                             .steps_done = std::atoll(argv[2]),
                             .warn = [](const std::string& text) { std::puts(text.c_str()); }});
  for (long long step = std::atoll(argv[3]); step <= std::atoll(argv[4]); ++step) {
    log.Write(step, {{"loss/train", std::atof(argv[5])}});
  }
  return 0;
}
