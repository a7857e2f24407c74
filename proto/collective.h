// SPDX-License-Identifier: Apache-2.0
// Where a worker is among c10d's collectives, as its flight recorder has it and as it tells its
// agent (progress_message.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace ddprun {

// Limits for one worker, which has few process groups and reports a few collectives of each.
inline constexpr std::size_t kCollectivesDoneMax = 32;
// Longer names of groups and collectives are cut.
inline constexpr std::size_t kCollectiveNameBytesMax = 48;

// Name and group of a step that is replayed as a CUDA graph, whose collectives c10d does not see;
// its number is the step's, 0 that of the warm-up's.
inline constexpr char kGraphStep[] = "graph_step";

struct Collective {
  std::string group;        // the process group's name; "0" is that of all ranks
  std::int64_t number = 0;  // counts from 1 in its group, on all ranks alike; 0: it has none (send)
  std::string name;         // "all_reduce"
  std::int64_t bytes = -1;  // of its input; -1: not said
  std::string dtype;        // "float32"; empty: not said
  bool operator==(const Collective&) const = default;
};

struct CollectivePlace {
  std::optional<Collective> waits;  // has begun and is not done: the oldest one; absent: none
  std::vector<Collective> last;     // the last that were done, of each group at least one
  bool operator==(const CollectivePlace&) const = default;
};

}  // namespace ddprun
