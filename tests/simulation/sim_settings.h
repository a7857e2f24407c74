// SPDX-License-Identifier: Apache-2.0
// What a simulated run is like, apart from what happens to it: one field for each value of a
// scenario's lines "run", "network" and "start".
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "proto/version.h"
#include "tests/simulation/sim_network.h"

namespace ddprun {

struct SimSettings {
  std::uint64_t seed = 1;  // of everything that is left to chance
  int nodes_min = 1;
  int nodes_max = 1;
  int restarts = 0;
  RestartPolicy restart_policy;
  std::chrono::milliseconds lease{10'000};
  std::chrono::milliseconds last_call{5'000};
  std::chrono::milliseconds join_timeout{60'000};
  std::chrono::milliseconds term_timeout{5'000};
  bool hosted = false;   // the service lives in n0's ddprun, and has no journal
  bool journal = false;  // the service comes back to its runs
  // How long the workers of a round work, once all have met.
  Duration work = std::chrono::seconds(10);
  // Workers whose peers have died fail after at most this; 0: they hang until they are stopped.
  Duration collective{0};
  // How many of the workers hang when they are told to end.
  double hang = 0;
  bool keep = false;  // workers can be kept when their round breaks
  RankOrder rank_order = RankOrder::kJoin;
  // Until the disk has what was written.
  Duration disk_max = std::chrono::milliseconds(5);
  // A snapshot is taken after this many records.
  std::uint64_t snapshot_after = 100;
  SimNetworkOptions network;
};

struct SimNodeSettings {
  std::optional<int> rank;  // --node-rank
  int workers = 1;
  Duration skew{0};  // of its clock
  unsigned version = kProtocolVersion;
  int forges = 0;  // its reports claim what is not its own to say
  std::string topology = "s0";
};

}  // namespace ddprun
