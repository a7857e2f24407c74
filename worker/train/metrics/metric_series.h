// SPDX-License-Identifier: Apache-2.0
// Reads metrics.jsonl.
#pragma once

#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

namespace ddprun {

struct MetricPoint {
  std::int64_t step = 0;
  double time = 0;  // seconds since 1970
  double value = 0;
};

// By name, in the order of the file.
using MetricSeries = std::map<std::string, std::vector<MetricPoint>>;

// A longer line is not one of ours.
inline constexpr std::size_t kMetricsLineBytes = 1 << 20;

// Numbers only; a line that is cut off at the file's end (a run that goes on, or was killed) is
// left out. Throws std::runtime_error with one sentence: the file cannot be read, or a line of it
// is no JSON object with step and time.
MetricSeries ReadMetrics(const std::string& path);

// How many bytes of the file are whole lines of steps up to `last_step`, from its beginning. 0 if
// it cannot be read, or is not a regular file.
std::uint64_t BytesUpToStep(const std::string& path, std::int64_t last_step);

}  // namespace ddprun
