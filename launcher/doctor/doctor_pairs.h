// SPDX-License-Identifier: Apache-2.0
// Which nodes connect to which in `ddprun doctor`, and the evaluation of their samples. Pure.
#pragma once

#include <cstdint>
#include <vector>

namespace ddprun {

// The peers of node `index` of `count`, ascending: all other nodes, or from kProbeAllNodesMax nodes
// on its two neighbours and node 0, so that the work of a node does not grow with their number.
std::vector<int> PlanPeers(int index, int count);

// The peer to which it sends data while all nodes do the same, as in a ring allreduce.
int RingPeer(int index, int count);

// One request: this node's wall clock when it was sent, the time until the reply, and the peer's
// wall clock in between.
struct ClockSample {
  std::int64_t own_wall_ns = 0;
  std::int64_t rtt_ns = 0;
  std::int64_t peer_wall_ns = 0;
};

struct ClockEstimate {
  double rtt_seconds = 0;   // the median
  double skew_seconds = 0;  // of the peer's clock; positive: it is ahead
  double uncertainty = 0;   // half of the shortest round trip
};

// `samples` is not empty.
ClockEstimate EstimateClock(std::vector<ClockSample> samples);

}  // namespace ddprun
