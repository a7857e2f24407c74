// SPDX-License-Identifier: Apache-2.0
// The commands that start the node of each host, and the messages sent to it. Pure: options, hosts
// and facts about this machine in, commands and texts out.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "launcher/node/control_pipe_protocol.h"
#include "launcher/options/options.h"

namespace ddprun {

// The only argument of ddprun on the nodes. Everything else is sent over its stdin, so that no
// shell has to quote it, no `ps` shows it, and no length limit applies.
inline constexpr char kControlPipeFlag[] = "--control-pipe";

// Among the arguments sent to a node of `ddprun doctor`, with the expected number of nodes.
inline constexpr char kDoctorFlag[] = "--doctor=";

enum class TransportKind { kDirect, kSsh, kRsh, kSrun };

// One process of the head that connects it to one node, or with srun to all of them.
struct Transport {
  TransportKind kind = TransportKind::kSsh;
  std::vector<int> nodes;
  // Tried in this order while ddprun is not found (exit code 127).
  std::vector<std::vector<std::string>> commands;
  std::string launch_agent = {};  // --launch-agent; empty: not given
  Setup setup;
};

// "directly", "ssh", "--rsh" or "srun".
const char* TransportName(TransportKind kind);

struct HostsPlan {
  std::string run_id;
  std::vector<std::string> names;  // of the nodes, as given
  std::vector<std::string> nproc;  // --nproc-per-node of each node
  std::vector<Transport> transports;
  int nodes_min = 1;
  int nodes_max = 1;                 // further nodes are spares
  int doctor_nodes = 0;              // expected by `ddprun doctor`; 0: this is a run
  std::optional<Endpoint> endpoint;  // of the user's service; absent: the first node hosts it
  std::string master_addr;           // of the user; empty: determined by the head
  int master_port = 0;               // 0: any
};

// Facts about this machine.
struct HostsFacts {
  std::string own_path;  // of ddprun
  std::string folder;    // the working folder
  std::string run_id;    // default
  std::vector<std::string> environment;
  std::function<bool(const std::string& host)> is_this_machine;
};

// INVALID_ARGUMENT: one sentence for people.
absl::StatusOr<HostsPlan> MakeHostsPlan(const Options& options, const std::vector<HostEntry>& hosts,
                                        const HostsFacts& facts);

// The part of this environment that is sent to other hosts: everything except variables of ddprun
// and those that concern this machine, this login or this job step. `exports` adds NAME=VALUE, or
// the variable NAME of this environment.
std::vector<std::string> EnvironmentForHosts(const std::vector<std::string>& environment,
                                             const std::vector<std::string>& exports);

// True if the variable is not sent to other hosts, because it differs between hosts by nature.
bool NamesThisMachine(absl::string_view name);

// What would run where, one line per node; never the secret.
std::string HostsPlanText(const HostsPlan& plan);

}  // namespace ddprun
