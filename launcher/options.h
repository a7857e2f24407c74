// SPDX-License-Identifier: Apache-2.0
// The command line of ddprun: torchrun's flags with torchrun's meanings. Pure: arguments and
// variables in, values out.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "launcher/flags.h"
#include "launcher/options_affinity.h"
#include "launcher/options_hosts.h"
#include "launcher/options_logs.h"
#include "launcher/options_restarts.h"
#include "launcher/options_stopping.h"
#include "rendezvous/credentials.h"

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
  std::string run_id;  // empty: none was given
  std::optional<Endpoint> endpoint;
  std::string local_addr;  // empty: found by the route to the service
  std::string role = "default";
  std::chrono::milliseconds join_timeout{0};
  std::chrono::milliseconds last_call{0};
  std::chrono::milliseconds lease{0};
  AffinityOptions affinity;
  RestartOptions restarts;
  StopOptions stopping;
  LogOptions logs;
  SecurityOptions security;
  HostOptions hosts;
  bool module = false;
  bool no_python = false;
  std::vector<std::string> program;  // and its arguments, as they were given
};

// --help and --version: text for stdout, exit code 0.
struct ShowText {
  std::string text;
};

// The flags of one subject, as --help shows them. A new subject is a file options_<name> of its own
// and a row in FlagTopics().
struct FlagTopic {
  const char* name;   // one word
  const char* title;  // a heading
  const std::vector<Flag>& flags;
};

std::vector<FlagTopic> FlagTopics();

// Whether the nodes meet over TCP: a node that meets nobody needs no secret.
bool UsesNetwork(const Options& options);

// `arguments` without argv[0]. The command line comes before PET_<NAME> variables, these before
// defaults. Everything after the program belongs to the program. INVALID_ARGUMENT: one sentence for
// people.
absl::StatusOr<std::variant<Options, ShowText>> ParseOptions(
    const std::vector<std::string>& arguments, const GetVariable& get_variable);

}  // namespace ddprun
