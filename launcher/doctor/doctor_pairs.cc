// SPDX-License-Identifier: Apache-2.0
#include "launcher/doctor/doctor_pairs.h"

#include <algorithm>
#include <set>

#include "launcher/base/limits.h"

namespace ddprun {

std::vector<int> PlanPeers(int index, int count) {
  std::set<int> peers;
  if (count < kProbeAllNodesMax) {
    for (int peer = 0; peer < count; ++peer) peers.insert(peer);
  } else {
    peers = {0, (index + count - 1) % count, (index + 1) % count};
  }
  peers.erase(index);
  return {peers.begin(), peers.end()};
}

int RingPeer(int index, int count) { return (index + 1) % count; }

ClockEstimate EstimateClock(std::vector<ClockSample> samples) {
  std::sort(samples.begin(), samples.end(),
            [](const ClockSample& a, const ClockSample& b) { return a.rtt_ns < b.rtt_ns; });
  // The fastest reply had the least delay that could affect only one direction.
  const ClockSample& best = samples.front();
  const auto seconds = [](std::int64_t ns) { return static_cast<double>(ns) * 1e-9; };
  return {.rtt_seconds = seconds(samples[samples.size() / 2].rtt_ns),
          .skew_seconds = seconds(best.peer_wall_ns - (best.own_wall_ns + best.rtt_ns / 2)),
          .uncertainty = seconds(best.rtt_ns) / 2};
}

}  // namespace ddprun
