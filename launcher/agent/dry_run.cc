// SPDX-License-Identifier: Apache-2.0
#include "launcher/agent/dry_run.h"

#include <unistd.h>

#include <algorithm>
#include <map>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "launcher/base/command.h"
#include "launcher/base/int_ranges.h"
#include "launcher/base/limits.h"
#include "launcher/collectives/flight_recorder.h"
#include "launcher/node/network.h"
#include "launcher/node/rendezvous_endpoint.h"
#include "launcher/placement/role_ranks.h"
#include "launcher/placement/worker_environ.h"
#include "proto/progress_message.h"
#include "proto/text.h"

namespace ddprun {
namespace {

// Set unless the user has set them (worker_interface.h).
constexpr const char* kInterfaceNames[] = {"NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"};
constexpr absl::Span<const char* const> kInterfaces(kInterfaceNames);
constexpr char kUnknownPath[] = "\x01";  // of a file in the folder that each run creates

std::string Line(const std::string& what, const std::string& text) {
  return absl::StrCat("  ", what, std::string(what.size() < 12 ? 12 - what.size() : 1, ' '), text,
                      "\n");
}

void AppendQuoted(std::string* out, const std::string& word) { *out += ShellQuote(word); }

int LocalWorldSize(const DryRun& dry_run) { return static_cast<int>(dry_run.places.size()); }

bool KnowsRanks(const Options& options) {
  return options.nodes == 1 || (options.nodes_min == options.nodes &&
                                options.node_rank.has_value() && options.asks_for_rank);
}

int NodeRank(const Options& options) {
  return options.nodes == 1 ? 0 : options.node_rank.value_or(0);
}

std::string RankOrderText(const DryRun& dry_run) {
  switch (dry_run.options.rank_order) {
    case RankOrder::kJoin:
      break;
    case RankOrder::kHost:
      return ", in the order of host names";
    case RankOrder::kTopology:
      return absl::StrCat(", by topology, where its place is ", dry_run.topology);
  }
  return "";
}

std::string Nodes(const DryRun& dry_run) {
  const Options& options = dry_run.options;
  if (options.nodes == 1) return "1, this one alone";
  std::string text = options.nodes_min == options.nodes
                         ? absl::StrCat(options.nodes)
                         : absl::StrCat(options.nodes_min, " to ", options.nodes);
  return options.node_rank.has_value() && options.asks_for_rank
             ? absl::StrCat(text, "; this one is node ", *options.node_rank)
             : absl::StrCat(text, "; its node rank is assigned at the rendezvous",
                            RankOrderText(dry_run));
}

std::string Workers(const DryRun& dry_run) {
  const int count = LocalWorldSize(dry_run);
  if (!KnowsRanks(dry_run.options))
    return absl::StrCat(count, " here; their ranks are assigned at the rendezvous");
  const int first = NodeRank(dry_run.options) * count;
  return absl::StrCat(count, " here: ",
                      count == 1 ? absl::StrCat("rank ", first)
                                 : absl::StrCat("ranks ", first, " to ", first + count - 1),
                      " of ", count * dry_run.options.nodes,
                      dry_run.options.nodes > 1 ? ", if every node has as many" : "");
}

std::string Rendezvous(const DryRun& dry_run) {
  const Options& options = dry_run.options;
  if (!UsesNetwork(options)) return "inside ddprun; no network";
  if (options.endpoint.has_value()) {
    const bool is_one = options.endpoint->others.empty();
    const bool here = options.is_host.value_or(dry_run.endpoint_is_here && is_one);
    if (HostsReplica(options)) {
      return absl::StrCat(EndpointText(*options.endpoint), ", hosted by these machines; ",
                          options.journal.empty()
                              ? "the first one leads, and the others keep copies of its journal"
                              : "one leads, with the journal in " + options.journal);
    }
    return absl::StrCat(
        EndpointText(*options.endpoint),
        here ? ", hosted here unless it is served there already" : ", hosted elsewhere");
  }
  return absl::StrCat(HostPort(*options.master_addr, options.master_port.value_or(kPortDefault)),
                      *options.node_rank == 0 ? ", hosted here" : ", hosted by node 0");
}

WorkerEnv EnvOf(const DryRun& dry_run, int local_rank) {
  const Options& options = dry_run.options;
  // The round that begins if every node has the same workers.
  const std::vector<RoleWorkers> roles = RolesOf(options, dry_run.places);
  const int workers = LocalWorldSize(dry_run);
  Start start{.node_rank = NodeRank(options), .node_count = options.nodes};
  start.rank_first = start.role_rank_first = start.node_rank * workers;
  start.world_size = start.role_world_size = start.node_count * workers;
  start.master_addr = options.master_addr.value_or("127.0.0.1");
  start.master_port = options.nodes == 1 ? options.master_port.value_or(1) : 1;
  for (const RoleWorkers& role : roles) {
    start.roles.push_back({.rank_first = start.node_rank * role.workers,
                           .world_size = start.node_count * role.workers,
                           .node_rank = start.node_rank,
                           .node_count = start.node_count,
                           .master_addr = start.master_addr,
                           .master_port = start.master_port});
  }
  WorkerEnv env;
  SetRanks(start, roles, options.ranks_by_role, local_rank, env);
  env.max_restarts = options.restarts.max_restarts;
  env.run_id = options.run_id;
  env.agent_store = options.worker_store != WorkerStore::kRank0;
  env.error_file = env.agent_socket = env.notify_socket = kUnknownPath;
  env.round = 1;
  env.one_round = HasOneRound(options);
  env.console_is_terminal = isatty(STDERR_FILENO) == 1;
  return env;
}

// Variables whose values are only known during the run, and why.
std::map<std::string, std::string> Unknown(const Options& options) {
  std::map<std::string, std::string> unknown = {
      {"TORCHELASTIC_ERROR_FILE", "a file that is created for each worker"},
      {"DDPRUN_AGENT_SOCKET", "a socket that is created for each run"},
      {kNotifySocketVariable, "a socket that is created for each worker"},
      {"TORCH_FR_DUMP_TEMP_FILE", "a file that PyTorch writes for each worker"},
      {"TORCH_NCCL_DEBUG_INFO_TEMP_FILE", "the same file"},
      {"TORCH_NCCL_DEBUG_INFO_PIPE_FILE", "a FIFO that PyTorch makes for each worker"}};
  if (options.nodes > 1 || !options.master_port.has_value() || !options.more_programs.empty())
    unknown["MASTER_PORT"] = "a port that is free on rank 0's node";
  if (options.run_id.empty()) unknown["TORCHELASTIC_RUN_ID"] = "a name with the time of the start";
  for (const char* name : kInterfaces)
    unknown[name] = "the interface that reaches the rendezvous, unless that is lo";
  if (options.nodes > 1 && options.worker_store == WorkerStore::kAgent) {
    unknown["MASTER_PORT"] = "a free port of this node, where its agent serves the store";
  } else if (options.nodes > 1) {
    unknown["MASTER_ADDR"] = "the address of rank 0's node";
  }
  if (KnowsRanks(options)) return unknown;
  for (const char* name :
       {"RANK", "ROLE_RANK", "GROUP_RANK", "WORLD_SIZE", "ROLE_WORLD_SIZE", "GROUP_WORLD_SIZE"}) {
    unknown[name] = "assigned at the rendezvous";
  }
  return unknown;
}

std::vector<std::string> EnvironmentOf(const DryRun& dry_run, int local_rank) {
  std::vector<std::string> network;
  for (const char* name :
       UsesNetwork(dry_run.options) ? kInterfaces : absl::Span<const char* const>()) {
    const bool own = std::any_of(
        dry_run.inherited.begin(), dry_run.inherited.end(),
        [&](const std::string& entry) { return absl::StartsWith(entry, absl::StrCat(name, "=")); });
    if (!own) network.push_back(absl::StrCat(name, "="));
  }
  std::vector<std::string> environment =
      WorkerEnviron(dry_run.inherited, EnvOf(dry_run, local_rank),
                    dry_run.places[static_cast<std::size_t>(local_rank)], network);
  if (dry_run.options.hangs.flight_recorder)
    AddFlightRecorder({kUnknownPath, kUnknownPath}, "", local_rank, environment);
  return environment;
}

// The variables of the first and the last worker (of a program) that differ from ddprun's own.
std::string Environment(const DryRun& dry_run, int first_worker, int last_worker) {
  const std::vector<std::string> first = EnvironmentOf(dry_run, first_worker);
  const std::vector<std::string> last = EnvironmentOf(dry_run, last_worker);
  const std::set<std::string> own(dry_run.inherited.begin(), dry_run.inherited.end());
  std::map<std::string, std::string> of_last;
  for (const std::string& entry : last) {
    const std::size_t equals = entry.find('=');
    of_last[entry.substr(0, equals)] = entry.substr(equals + 1);
  }
  const std::map<std::string, std::string> unknown = Unknown(dry_run.options);
  std::string text;
  for (const std::string& entry : first) {
    if (own.count(entry) != 0) continue;
    const std::string name = entry.substr(0, entry.find('='));
    const std::string value = entry.substr(name.size() + 1);
    if (const auto why = unknown.find(name); why != unknown.end()) {
      absl::StrAppend(&text, "    ", name, "=<", why->second, ">\n");
    } else {
      absl::StrAppend(&text, "    ", name, "=", ShellQuote(value),
                      of_last[name] == value ? "" : absl::StrCat(" to ", of_last[name]), "\n");
    }
  }
  return text;
}

std::string Wraps(const Options& options) {
  std::string text;
  for (const WorkerWrap& wrap : options.wraps) {
    const std::string ranks =
        wrap.ranks.empty()
            ? "all ranks"
            : absl::StrCat(wrap.ranks.size() == 1 ? "rank " : "ranks ", RangesText(wrap.ranks));
    absl::StrAppend(
        &text,
        Line("wrapped", absl::StrCat(ranks, ": ", absl::StrJoin(wrap.command, " ", AppendQuoted))));
  }
  return text;
}

std::string Stdin(const WorkerStdin& worker_stdin) {
  return worker_stdin.to == WorkerStdin::To::kNone ? "of no worker"
                                                   : absl::StrCat("of rank ", worker_stdin.rank);
}

}  // namespace

std::string SecretText(const Options& options, bool has_variable, const GetVariable& get_variable) {
  const SecurityOptions& security = options.security;
  if (!UsesNetwork(options)) return "none is needed";
  if (security.insecure) return "none: plain text (--insecure)";
  if (!security.tls_cert.empty()) return absl::StrCat("your certificate ", security.tls_cert);
  if (!security.token_file.empty()) return absl::StrCat("the file ", security.token_file);
  if (has_variable) return "DDPRUN_TOKEN of the environment";
  if (!options.token_env_file.empty())
    return absl::StrCat("DDPRUN_TOKEN of ", options.token_env_file);
  if (const auto credential = CredentialTokenPath(get_variable)) {
    return absl::StrCat("systemd's credential ", *credential);
  }
  const absl::StatusOr<std::string> path = DefaultTokenPath(get_variable);
  if (!path.ok()) return std::string(path.status().message());
  return absl::StrCat("the file ", *path,
                      access(path->c_str(), F_OK) == 0 ? "" : ", which would be created");
}

namespace {

std::string Command(const Program& program) {
  std::vector<std::string> argv = program.argv;
  argv.front() = program.path;
  return absl::StrJoin(argv, " ", AppendQuoted);
}

// One for each program.
std::string Commands(const DryRun& dry_run) {
  if (dry_run.programs.size() == 1) return Line("command", Command(dry_run.programs.front()));
  const std::vector<RoleWorkers> roles = RolesOf(dry_run.options, dry_run.places);
  std::string text;
  for (std::size_t i = 0; i < roles.size(); ++i) {
    absl::StrAppend(
        &text, Line("command", absl::StrCat(Command(dry_run.programs[i]), "  (role ", roles[i].name,
                                            ", ", roles[i].workers,
                                            roles[i].workers == 1 ? " worker)" : " workers)")));
  }
  return text;
}

std::string Environments(const DryRun& dry_run) {
  std::string text;
  int first = 0;
  for (const RoleWorkers& role : RolesOf(dry_run.options, dry_run.places)) {
    absl::StrAppend(&text, "  environment of the workers",
                    dry_run.programs.size() > 1 ? absl::StrCat(" of role ", role.name) : "",
                    ", in addition to ddprun's own:\n",
                    Environment(dry_run, first, first + role.workers - 1));
    first += role.workers;
  }
  return text;
}

}  // namespace

std::string DryRunText(const DryRun& dry_run) {
  const Options& options = dry_run.options;
  std::string text =
      absl::StrCat("ddprun would start, on ", dry_run.host, ":\n", Commands(dry_run));
  absl::StrAppend(&text, Line("workers", Workers(dry_run)),
                  options.preload.empty()
                      ? ""
                      : Line("preload", absl::StrCat(absl::StrJoin(options.preload, ", "),
                                                     ", imported once; workers are forked")),
                  Wraps(options),
                  options.worker_stdin.to == WorkerStdin::To::kShared
                      ? ""
                      : Line("stdin", Stdin(options.worker_stdin)),
                  Line("nodes", Nodes(dry_run)), Line("rendezvous", Rendezvous(dry_run)),
                  Line("secret", dry_run.secret),
                  Line("run", options.run_id.empty() ? "named when it starts" : options.run_id),
                  Line("restarts", absl::StrCat("up to ", options.restarts.max_restarts)),
                  Line("logs", options.logs.log_dir.empty() ? "no files" : options.logs.log_dir));
  absl::StrAppend(&text, Environments(dry_run));
  for (const std::string& note : options.notes) absl::StrAppend(&text, "  note: ", note, "\n");
  return text;
}

}  // namespace ddprun
