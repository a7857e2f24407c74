// SPDX-License-Identifier: Apache-2.0
// The runs of `train compare`, and their results, or those of two past runs, side by side. Pure.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "worker/train/config/config.h"
#include "worker/train/metrics/metric_series.h"

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

// Evaluations, and classes, that a table shows at most.
inline constexpr std::size_t kComparedRowsMax = 20;

struct PastEvaluation {
  double epoch = 0;  // epochs that were done
  double accuracy = 0;
  double loss = 0;
};

// A training that has ended.
struct PastRun {
  std::string name;
  nlohmann::json summary;  // summary.json
  std::vector<PastEvaluation> evaluations;
};

// From the records of metrics.jsonl.
std::vector<PastEvaluation> EvaluationsIn(const MetricSeries& metrics);

// The settings that differ, figures, accuracy and loss by epoch, and the classes whose accuracies
// differ most. Throws std::runtime_error if a summary is none of train's.
std::string ToTables(const PastRun& a, const PastRun& b);

// [{"run": ..., "summary": {...}, "evaluations": [...]}, ...]
std::string ToJson(const PastRun& a, const PastRun& b);

}  // namespace ddprun
