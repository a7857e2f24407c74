// SPDX-License-Identifier: Apache-2.0
// The curves of a chart, from the metrics of runs.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "worker/train/metrics/metric_series.h"

namespace ddprun {

enum class XAxis { kStep, kEpoch, kMinutes };

struct Run {
  std::string name;
  MetricSeries metrics;
};

using Points = std::vector<std::pair<double, double>>;

// The confusion matrix that a training has left in its summary.json.
struct Confusion {
  std::string title;
  std::vector<std::string> names;           // of the classes, or their numbers
  std::vector<std::vector<double>> counts;  // of test images, by their class and the predicted one
};

// A metric of one run: as measured, and smoothed.
struct Curve {
  std::size_t run = 0;
  bool test = false;  // of the test images: few points, drawn with markers
  Points points;
  Points smooth;  // empty: not requested, or too few points
};

struct Panel {
  std::string title;
  std::vector<Curve> curves;
};

// The metrics of a run's folder (or of its metrics.jsonl). Throws std::runtime_error with one
// sentence if there are none.
Run ReadRun(const std::string& path);

// That of a run's folder. Nothing if the run has not ended, or has none (no evaluation, or more
// than a hundred classes).
std::optional<Confusion> ReadConfusion(const std::string& folder);

// The shortest trailing parts of the paths that distinguish the runs.
std::vector<std::string> ShortNames(const std::vector<std::string>& paths);

// Panels of loss and accuracy (in per cent); a panel without values is omitted. `smoothing` (0 to
// below 1) is the weight of earlier values, as in TensorBoard.
std::vector<Panel> MakePanels(const std::vector<Run>& runs, XAxis x, double smoothing);

// A bias-corrected exponential moving average.
Points Smoothed(const Points& points, double smoothing);

}  // namespace ddprun
