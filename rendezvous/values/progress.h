// SPDX-License-Identifier: Apache-2.0
// How far workers are, as their heartbeats tell it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace ddprun {

// How far a worker is, as it reports it; of a node or a run: its workers together.
struct Progress {
  std::int64_t step = -1;   // current step; of several the least; -1: not reported
  std::int64_t epoch = -1;  // likewise
  double rate = 0;          // per second; of several the sum; 0: not reported
  std::string rate_unit;    // "images"
  std::string section;      // what it does; of several: of the one furthest behind
  // A rank that needs much longer for a step than its peers, and how many times as long; of several
  // the slowest. -1: none.
  std::int64_t slow_rank = -1;
  double slowness = 0;
  // How often a rank's memory was found to be damaged, of several the sum, and the rank that it was
  // found on most often. -1: not checked; none.
  std::int64_t damages = -1;
  std::int64_t damaged_rank = -1;
  // Of its last evaluation, from 0 to 1; of several that of one, as they evaluate together.
  std::optional<double> accuracy{};
  bool operator==(const Progress&) const = default;
};

// One worker, for people who look at single ranks.
struct RankReport {
  std::int64_t step = -1;      // -1: not reported
  double rate = 0;             // per second; 0: not reported
  std::optional<double> loss;  // infinite: it is not finite
  std::string section;
  std::int64_t memory = 0;      // resident bytes of its process; 0: not known
  std::int64_t gpu_memory = 0;  // bytes; 0: not reported
  double slowness = 0;          // of a step, beside its peers; 0: it is not slow
  bool hung = false;            // it was found to hang, and is alive
  bool ended = false;
  bool operator==(const RankReport&) const = default;
};

// "rank 3 on host b needs 2.1 times as long for a step as its peers".
std::string SlowRankText(std::int64_t rank, const std::string& host, double slowness);
// "the memory of rank 3 on host b was found to be damaged 2 times".
std::string DamagedRankText(std::int64_t rank, const std::string& host, std::int64_t times);

}  // namespace ddprun
