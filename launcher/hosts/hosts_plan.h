// SPDX-License-Identifier: Apache-2.0
// Which command starts the node of each host, and what is sent to it. Pure: options, hosts and
// facts about this machine in, commands and texts out.
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

// The only argument of the nodes' ddprun: all else comes over its stdin, so that no shell quotes
// it, no `ps` shows it, and no limit of a command line applies.
inline constexpr char kControlPipeFlag[] = "--control-pipe";

// Among their arguments, with the number of nodes there should be: they are those of `ddprun
// doctor`.
inline constexpr char kDoctorFlag[] = "--doctor=";

enum class TransportKind { kDirect, kSsh, kRsh, kSrun };

// One process of the head that connects it to one node, or with srun to all of them.
struct Transport {
  TransportKind kind = TransportKind::kSsh;
  std::vector<int> nodes;
  // The first; if ddprun is not there (exit code 127) the next.
  std::vector<std::vector<std::string>> commands;
  std::string launch_agent = {};  // as the user named it; empty: not named
  Setup setup;
};

struct HostsPlan {
  std::string run_id;
  std::vector<std::string> names;  // of the nodes, as they were given
  std::vector<std::string> nproc;  // of each, as --nproc-per-node has it
  std::vector<Transport> transports;
  int nodes_min = 1;
  int nodes_max = 1;                 // what is above it stands by
  int doctor_nodes = 0;              // that `ddprun doctor` should find; 0: this is a run
  std::optional<Endpoint> endpoint;  // a service that the user runs; absent: in the first node
  std::string master_addr;           // as the user gave it; empty: found
  int master_port = 0;               // 0: any
};

// What the plan needs to know of this machine.
struct HostsFacts {
  std::string own_path;  // of ddprun
  std::string folder;    // the working folder
  std::string run_id;    // of a run that was given none
  std::vector<std::string> environment;
  std::function<bool(const std::string& host)> is_this_machine;
};

// INVALID_ARGUMENT: one sentence for people.
absl::StatusOr<HostsPlan> MakeHostsPlan(const Options& options, const std::vector<HostEntry>& hosts,
                                        const HostsFacts& facts);

// What of this environment a program on another host should find too: all but what names this
// machine, this login or this job step, and what belongs to ddprun. `exports` come on top, as
// NAME=VALUE or as names of what is kept here.
std::vector<std::string> EnvironmentForHosts(const std::vector<std::string>& environment,
                                             const std::vector<std::string>& exports);

// Whether a variable of that name is left out there: it differs between hosts by its nature.
bool NamesThisMachine(absl::string_view name);

// For a shell: 'as it is' where it needs to be quoted.
std::string ShellQuote(const std::string& word);

// What would run where, a node a line; never the secret.
std::string HostsPlanText(const HostsPlan& plan);

}  // namespace ddprun
