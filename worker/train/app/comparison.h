// SPDX-License-Identifier: Apache-2.0
// The runs of `train compare`, and their results side by side. Pure.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "worker/train/config/config.h"

namespace ddprun {

struct ComparedRun {
  std::string name;  // "plain", "ddp", "pipeline"
  int ranks = 1;
  std::vector<std::string> settings;  // of `train`, as on its command line
};

// Plain in one process, data-parallel on `ranks` ranks, and a pipeline of as many stages (or of
// --pipeline stages, then also data-parallel): same seed, same number of steps, and in each step
// the same images, --batch-size per rank. Each run writes to the folder of its name in
// --output-dir.
std::vector<ComparedRun> ComparedRuns(const Config& config, int ranks);

// The result of a run: the numbers of its summary.json by name, or the error that it ended with.
struct ComparedResult {
  std::string name;
  int ranks = 1;
  std::map<std::string, double> numbers;
  std::string error;
};

// A column per run, a row per figure that any run has, and the errors below.
std::string ToTable(const std::vector<ComparedResult>& results);

// {"plain": {"ranks": 1, "images_per_second": ...}, ...}
std::string ToJson(const std::vector<ComparedResult>& results);

}  // namespace ddprun
