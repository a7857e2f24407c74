// SPDX-License-Identifier: Apache-2.0
// The runs of `train compare`, and their results side by side. Pure.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "worker/config/config.h"

namespace ddprun {

// One of the ways.
struct ComparedRun {
  std::string name;  // "plain", "ddp", "pipeline"
  int ranks = 1;
  std::vector<std::string> settings;  // of `train`, as on its command line
};

// Plain in one process, data-parallel on `ranks` ranks, and a pipeline of as many stages (or of
// --pipeline, data-parallel on top): same seed, same number of steps, and in each step the same
// images, --batch-size of them for each of the ranks. Each run writes to its name's folder in
// --output-dir.
std::vector<ComparedRun> ComparedRuns(const Config& config, int ranks);

// What a run came to: numbers of its summary.json by their names there; or the sentence that it
// ended with instead.
struct ComparedResult {
  std::string name;
  int ranks = 1;
  std::map<std::string, double> numbers;
  std::string error;
};

// A column for each run, a row for each figure that one of them has; what went wrong is below.
std::string ToTable(const std::vector<ComparedResult>& results);

// {"plain": {"ranks": 1, "images_per_second": ...}, ...}
std::string ToJson(const std::vector<ComparedResult>& results);

}  // namespace ddprun
