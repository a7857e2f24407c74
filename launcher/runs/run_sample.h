// SPDX-License-Identifier: Apache-2.0
// The state of a run at one moment, as its page (launcher/web) draws it: a line of `samples.jsonl`
// in the folder of a detached run, and what a page makes of each status of a run that goes on.
// Pure.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/observe/run_status.h"

namespace ddprun {

struct SampledNode {
  std::string id;
  std::string host;
  int node_rank = -1;  // -1: none yet
  NodeState state = NodeState::kWaiting;
  int rank_first = 0;
  int ranks = 0;
  // Not in a line.
  std::int64_t step = -1;
  double rate = 0;
  std::string section;
  std::int64_t slow_rank = -1;
  std::vector<int> hung;  // ranks
  bool operator==(const SampledNode&) const = default;
};

struct RunSample {
  std::int64_t time_ms = 0;  // since 1970
  std::uint64_t round = 0;
  int world_size = 0;
  std::int64_t step = -1;  // -1: not reported
  std::int64_t epoch = -1;
  double rate = 0;  // per second; 0: not reported
  std::string rate_unit;
  std::optional<double> loss;      // absent: not reported; not finite: a training that diverged
  std::optional<double> accuracy;  // of the last evaluation, 0 to 1; absent: not reported
  std::optional<double> goodput;   // share of all rank-seconds that were spent on training
  std::optional<std::vector<SampledNode>> nodes;  // absent: as before
};

// Without their progress, which no line has.
std::vector<SampledNode> NodesOf(const RunStatus& run);
RunSample SampleOf(const RunStatus& run, std::int64_t time_ms);

// One object, without a line end. With `nodes` as far as it then has at most `bytes_max`.
std::string SampleLine(const RunSample& sample, std::size_t bytes_max);
// Absent: it is none, as where a full disk has cut it.
std::optional<RunSample> ParseSample(const std::string& line);

// Time between two samples of a run that goes on for `elapsed`: 1/500 of it, so that there are some
// thousands of a run of any length; a second to a minute.
std::chrono::milliseconds SampleInterval(std::chrono::milliseconds elapsed);

}  // namespace ddprun
