// SPDX-License-Identifier: Apache-2.0
// What a node runs; the same for all rounds.
#pragma once

#include <csignal>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "launcher/options/options.h"
#include "launcher/placement/placement.h"
#include "launcher/processes/cgroup.h"
#include "launcher/processes/program.h"
#include "rendezvous/values/session_types.h"

namespace ddprun {

struct NodeConfig {
  Options options;
  std::vector<Program> programs;  // of SectionsOf(options)
  std::vector<Place> places;      // of the workers, by local rank
  NodeId node_id;
  std::string host;      // this node's name
  std::string topology;  // of --rank-order topology: this node's place in the network
  std::string temp_dir;
  std::string shared_dir;       // MakeSharedDir(); empty: none is needed, or it cannot be made
  sigset_t worker_signal_mask;  // the workers start with it
  const RunCgroup* cgroup = nullptr;  // outlives the node; the rounds' own are made in it
  int worker_stdin = -1;              // of the rank of --stdin; -1: ddprun's own

  int local_world_size() const { return static_cast<int>(places.size()); }
  const Place& place_of(int local_rank) const {
    return places[static_cast<std::size_t>(local_rank)];
  }
  const Program& program_of(int local_rank) const {
    return programs[static_cast<std::size_t>(place_of(local_rank).program)];
  }
  // Whether each role has a store of its own.
  bool has_role_stores() const { return options.ranks_by_role; }
  std::string agent_socket(int program) const {
    return has_role_stores() ? absl::StrCat(temp_dir, "/agent_", program, ".sock")
                             : temp_dir + "/agent.sock";
  }
};

}  // namespace ddprun
