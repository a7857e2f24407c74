// SPDX-License-Identifier: Apache-2.0
// The curves of a chart, from the metrics of runs.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "worker/metrics/metric_series.h"

namespace ddprun {

enum class XAxis { kStep, kEpoch, kMinutes };

struct Run {
  std::string name;
  MetricSeries metrics;
};

using Points = std::vector<std::pair<double, double>>;

// A metric of one run: as measured, and smoothed.
struct Curve {
  std::size_t run = 0;
  bool test = false;  // of the test images: few points, which are marked
  Points points;
  Points smooth;  // empty: not asked for, or too few points
};

struct Panel {
  std::string title;
  std::vector<Curve> curves;
};

// The metrics of a run's folder (or of its metrics.jsonl). Throws std::runtime_error with one
// sentence if there are none.
Run ReadRun(const std::string& path);

// Names that tell the runs apart: the last parts of their paths, as many as that takes.
std::vector<std::string> ShortNames(const std::vector<std::string>& paths);

// Loss and accuracy (in per cent); a panel that no run has a value for is left out. `smoothing`
// from 0 up to but not including 1 is the weight of what came before, as TensorBoard's.
std::vector<Panel> MakePanels(const std::vector<Run>& runs, XAxis x, double smoothing);

// An exponential moving average without its bias towards the first value.
Points Smoothed(const Points& points, double smoothing);

}  // namespace ddprun
