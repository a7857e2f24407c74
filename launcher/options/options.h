// SPDX-License-Identifier: Apache-2.0
// What the command line of ddprun says: torchrun's flags with torchrun's meanings. Read by
// command_line/parse_options.h.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "launcher/base/flags.h"
#include "launcher/options/options_affinity.h"
#include "launcher/options/options_doctor.h"
#include "launcher/options/options_hangs.h"
#include "launcher/options/options_hosts.h"
#include "launcher/options/options_logs.h"
#include "launcher/options/options_observe.h"
#include "launcher/options/options_restarts.h"
#include "launcher/options/options_stopping.h"
#include "launcher/options/options_torchrun.h"
#include "launcher/options/options_verdict.h"
#include "rendezvous/security/credentials.h"

namespace ddprun {

enum class ProcPerNode { kNumber, kAuto, kGpu, kCpu };

struct Options {
  int nodes = 1;      // the most; what --nnodes N says
  int nodes_min = 1;  // the least; the same unless --nnodes MIN:MAX
  ProcPerNode proc_per_node = ProcPerNode::kNumber;
  int proc_per_node_number = 1;
  std::optional<int> node_rank;
  std::optional<std::string> master_addr;
  std::optional<int> master_port;
  bool standalone = false;
  std::optional<bool> is_host;  // absent: the node that has the endpoint's address
  std::string run_id;           // empty: none was given
  std::optional<Endpoint> endpoint;
  std::string local_addr;  // empty: found by the route to the service
  std::string role = "default";
  std::chrono::milliseconds join_timeout{0};
  std::chrono::milliseconds last_call{0};
  std::chrono::milliseconds lease{0};
  AffinityOptions affinity;
  RestartOptions restarts;
  StopOptions stopping;
  HangOptions hangs;
  LogOptions logs;
  ObserveOptions observe;
  VerdictOptions verdict;
  SecurityOptions security;
  HostOptions hosts;
  std::optional<DoctorOptions> doctor;  // `ddprun doctor`: nothing is started
  TorchrunOptions torchrun;
  bool module = false;
  bool no_python = false;
  bool run_path = false;
  std::vector<std::pair<std::string, std::string>> variables;  // of files, to be set
  std::string token_env_file;  // the .env file that has the run's secret; empty: none
  bool dry_run = false;
  std::vector<std::string> program;  // and its arguments, as they were given
  // Printed before the run starts, and printed only on request
  // (LOGLEVEL=INFO, --dry-run): flags that have no effect.
  std::vector<std::string> warnings;
  std::vector<std::string> notes;
};

// Whether the nodes meet over TCP: a node without others needs no secret.
inline bool UsesNetwork(const Options& options) {
  return options.nodes > 1 || (options.endpoint.has_value() && !options.standalone);
}

}  // namespace ddprun
