// SPDX-License-Identifier: Apache-2.0
// A notice that a machine of the run will be taken away: a spot instance that is reclaimed, a job
// at the end of its time, maintenance. One node receives it, and all workers are told, since a
// checkpoint needs all ranks at one step.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace ddprun {

// Node to service.
struct PreemptionReport {
  std::chrono::milliseconds remaining{0};
  std::string reason;  // how the notice came: "SIGUSR1", "aws: spot instance-action terminate"
  // The other reports of this kind have one of these, and nothing else:
  bool withdrawn = false;   // the machine stays after all
  std::uint64_t saved = 0;  // all workers of the node have saved for the notice of this number
  bool operator==(const PreemptionReport&) const = default;
};

// Service to all nodes, and again to a node that joins later or reconnects.
struct Preemption {
  std::uint64_t number = 0;                // counts the notices of a run, from 1
  std::chrono::milliseconds remaining{0};  // 0: the notice is over before its time
  std::string host;                        // whose
  int node_rank = -1;                      // -1: it has none yet
  std::string reason;
  bool operator==(const Preemption&) const = default;
};

// "node b (node rank 1) will be taken away in 120 s (SIGUSR1)".
std::string ToSentence(const Preemption& preemption);

}  // namespace ddprun
