// SPDX-License-Identifier: Apache-2.0
// Which nodes connect to which in `ddprun doctor`, and what their samples mean. Pure.
#pragma once

#include <cstdint>
#include <vector>

namespace ddprun {

// Whom node `index` of `count` connects to: all others, and from kProbeAllNodesMax on its two
// neighbours and node 0, so that what a node does does not grow with their number. Ascending.
std::vector<int> PlanPeers(int index, int count);

// Whom it sends data to while all others do the same, as a ring of collectives does.
int RingPeer(int index, int count);

// One question and its answer: this node's steady and wall clock when it asked, the time until the
// answer came, and the other's wall clock in between.
struct ClockSample {
  std::int64_t own_wall_ns = 0;
  std::int64_t rtt_ns = 0;
  std::int64_t peer_wall_ns = 0;
};

struct ClockEstimate {
  double rtt_seconds = 0;   // the median
  double skew_seconds = 0;  // how far the other clock is ahead
  double uncertainty = 0;   // the other's clock was read somewhen in the shortest round trip
};

// `samples` is not empty.
ClockEstimate EstimateClock(std::vector<ClockSample> samples);

}  // namespace ddprun
