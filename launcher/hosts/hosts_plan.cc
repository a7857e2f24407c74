// SPDX-License-Identifier: Apache-2.0
#include "launcher/hosts/hosts_plan.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "launcher/base/limits.h"
#include "launcher/command_line/program_sections.h"
#include "launcher/hosts/hosts_total.h"
#include "launcher/node/remote_shell.h"
#include "launcher/options/run_flags.h"
#include "proto/text.h"
#include "rendezvous/base/limits.h"

namespace ddprun {
namespace {

// Names, or with a * at the end prefixes of names.
constexpr const char* kOwnVariables[] = {
    // Ours: flags go as flags, the secret goes by itself.
    "PET_*", "DDPRUN_*", "TORCHELASTIC_*",
    // This machine and this user on it.
    "HOME", "USER", "LOGNAME", "SHELL", "MAIL", "HOSTNAME", "HOST", "PWD", "OLDPWD", "TMPDIR",
    "TMP", "TEMP", "SHLVL", "_", "TERM", "TERMCAP", "COLORTERM", "COLUMNS", "LINES", "WINDOWID",
    // This login.
    "DISPLAY", "WAYLAND_*", "XAUTHORITY", "XDG_*", "DBUS_*", "SSH_*", "SUDO_*", "GPG_*", "TMUX*",
    "STY", "KRB5CCNAME", "INVOCATION_ID", "JOURNAL_STREAM", "NOTIFY_SOCKET",
    // This job step.
    "SLURM_*", "SLURMD_*", "SRUN_*", "PMI_*", "PMIX_*", "OMPI_*"};

absl::string_view NameOf(absl::string_view entry) { return entry.substr(0, entry.find('=')); }

using Arguments = std::vector<std::string>;

void Append(Arguments& words, const Arguments& more) {
  words.insert(words.end(), more.begin(), more.end());
}

// The commands that may start ddprun on a host, the likeliest first. It matters only for a path
// with blanks and the like whether the transport passes them to a shell, as ssh does, or executes
// them.
std::vector<Arguments> AgentCommands(const Options& options, const HostsFacts& facts,
                                     bool by_shell) {
  if (!options.hosts.launch_agent.empty()) {
    Arguments words = absl::StrSplit(options.hosts.launch_agent, ' ', absl::SkipEmpty());
    words.push_back(kControlPipeFlag);
    return {std::move(words)};
  }
  return {{by_shell ? ShellQuote(facts.own_path) : facts.own_path, kControlPipeFlag},
          {"ddprun", kControlPipeFlag}};
}

Transport TransportTo(int node, const std::string& name, const Options& options,
                      const HostsFacts& facts) {
  Transport transport{.kind = TransportKind::kSsh,
                      .nodes = {node},
                      .commands = {},
                      .launch_agent = options.hosts.launch_agent,
                      .setup = {}};
  if (facts.is_this_machine(name)) {
    transport.kind = TransportKind::kDirect;
    if (options.hosts.launch_agent.empty()) {
      transport.commands = {{facts.own_path, kControlPipeFlag}};
    } else {
      Arguments words = ThroughShell(options.hosts.launch_agent);
      words.push_back(kControlPipeFlag);
      transport.commands = {std::move(words)};
    }
    return transport;
  }
  const RemoteShell shell = RemoteShellTo(name, options.hosts.rsh);
  if (!shell.is_ssh) transport.kind = TransportKind::kRsh;
  for (const Arguments& agent : AgentCommands(options, facts, true)) {
    transport.commands.push_back(shell.argv);
    Append(transport.commands.back(), agent);
  }
  return transport;
}

Transport TransportOfSrun(std::size_t count, const Options& options, const HostsFacts& facts) {
  Transport transport{.kind = TransportKind::kSrun,
                      .nodes = {},
                      .commands = {},
                      .launch_agent = options.hosts.launch_agent,
                      .setup = {}};
  for (std::size_t i = 0; i < count; ++i) transport.nodes.push_back(static_cast<int>(i));
  Arguments before = {"srun", absl::StrCat("--nodes=", count), absl::StrCat("--ntasks=", count),
                      "--ntasks-per-node=1",
                      // Each ddprun has all that the job has on its node, and shares it out.
                      "--cpu-bind=none", "--kill-on-bad-exit=0", "--input=all", "--label",
                      "--quiet"};
  // In a step's shell (`srun --pty bash`), which has all of the job: else srun waits for its end.
  const bool in_step = std::any_of(
      facts.environment.begin(), facts.environment.end(),
      [](const std::string& entry) { return absl::StartsWith(entry, "SLURM_STEP_ID="); });
  if (in_step) before.push_back("--overlap");
  for (const Arguments& agent : AgentCommands(options, facts, false)) {
    transport.commands.push_back(before);
    Append(transport.commands.back(), agent);
  }
  return transport;
}

// Where roles decide it: of one program only with --role NAME:COUNT.
int WorkersOfRoles(const Options& options) {
  const int otherwise = options.more_programs.empty() ? 0 : options.proc_per_node_number;
  int workers = 0;
  for (const ProgramSection* section : SectionsOf(options))
    workers += section->workers.value_or(otherwise);
  return workers;
}

// --nproc-per-node if given, else the slots, else 1. Several programs share the slots, so that
// each says its number.
absl::StatusOr<std::string> NodeProcPerNode(const Options& options, const HostEntry& host) {
  const int workers = WorkersOfRoles(options);
  if (host.slots.has_value() && workers > *host.slots) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the roles have ", workers, " workers, which is more than the ", *host.slots,
        *host.slots == 1 ? " slot" : " slots", " of ", host.name, "; give the host more"));
  }
  switch (options.proc_per_node) {
    case ProcPerNode::kAuto:
      return "auto";
    case ProcPerNode::kGpu:
      return "gpu";
    case ProcPerNode::kCpu:
      return "cpu";
    case ProcPerNode::kXpu:
      return "xpu";
    case ProcPerNode::kNpu:
      return "npu";
    case ProcPerNode::kNumber:
      break;
  }
  if (!options.hosts.has_nproc)
    return absl::StrCat(options.more_programs.empty() ? host.slots.value_or(1) : 1);
  if (host.slots.has_value() && options.proc_per_node_number > *host.slots) {
    return absl::InvalidArgumentError(
        absl::StrCat("--nproc-per-node ", options.proc_per_node_number, " is more than the ",
                     *host.slots, host.slots == 1 ? " slot" : " slots", " of ", host.name,
                     "; give the host more, or leave --nproc-per-node out to take its slots"));
  }
  return absl::StrCat(options.proc_per_node_number);
}

// The arguments of ddprun on a node, except those that are known last and sent with Go.
Arguments NodeArguments(const Options& options, const std::string& run_id,
                        const std::string& nproc) {
  Arguments arguments = options.hosts.forwarded;
  arguments.push_back("--nproc-per-node"_flag.With(nproc));
  arguments.push_back("--rdzv-id"_flag.With(run_id));
  arguments.push_back("--");
  Append(arguments, options.program);
  for (const ProgramSection& section : options.more_programs)
    Append(arguments, ArgumentsOf(section));
  return arguments;
}

Setup MakeSetup(const Transport& transport, const Options& options, const HostsPlan& plan,
                const HostsFacts& facts) {
  Setup setup;
  const auto first = static_cast<std::size_t>(transport.nodes.front());
  if (transport.kind != TransportKind::kSrun) setup.node = transport.nodes.front();
  setup.names = plan.names;
  setup.folder = options.hosts.wdir.empty() ? facts.folder : options.hosts.wdir;
  // Direct children inherit the environment, and srun passes it on.
  const bool inherits =
      transport.kind == TransportKind::kDirect || transport.kind == TransportKind::kSrun;
  setup.environment = EnvironmentForHosts(inherits ? std::vector<std::string>() : facts.environment,
                                          options.hosts.exports);
  setup.arguments = NodeArguments(options, plan.run_id, plan.nproc[first]);
  if (plan.doctor_nodes > 0)
    setup.arguments.insert(setup.arguments.begin(), absl::StrCat(kDoctorFlag, plan.doctor_nodes));
  return setup;
}

Arguments Quoted(Arguments words) {
  for (std::string& word : words) word = ShellQuote(word);
  return words;
}

}  // namespace

const char* TransportName(TransportKind kind) {
  switch (kind) {
    case TransportKind::kDirect:
      return "directly";
    case TransportKind::kSsh:
      return "ssh";
    case TransportKind::kRsh:
      return "--rsh";
    case TransportKind::kSrun:
      return "srun";
  }
  return "";
}

absl::StatusOr<HostsPlan> MakeHostsPlan(const Options& options, const std::vector<HostEntry>& given,
                                        const HostsFacts& facts) {
  const absl::StatusOr<std::vector<HostEntry>> shared = ShareTotal(options, given);
  if (!shared.ok()) return shared.status();
  const std::vector<HostEntry>& hosts = *shared;
  HostsPlan plan;
  plan.run_id = options.run_id.empty() ? facts.run_id : options.run_id;
  const int count = static_cast<int>(hosts.size());
  plan.nodes_max = options.hosts.has_nnodes ? options.nodes : count;
  plan.nodes_min = options.hosts.has_nnodes ? options.nodes_min : count;
  if (plan.nodes_min > count) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--nnodes ", plan.nodes_min, " is more than the ", count, count == 1 ? " host" : " hosts",
        " that are given; give more, or leave it out"));
  }
  plan.nodes_max = std::min(plan.nodes_max, count);
  if (options.doctor.has_value()) {
    // The checkup covers the nodes that answer.
    plan.doctor_nodes = plan.nodes_min;
    plan.nodes_min = 1;
  }
  plan.endpoint = options.endpoint;
  plan.master_addr = options.master_addr.value_or("");
  plan.master_port = options.master_port.value_or(0);
  for (const HostEntry& host : hosts) {
    // With srun there are no spares: they would need a second srun.
    if (options.hosts.srun && static_cast<int>(plan.names.size()) == plan.nodes_max) break;
    absl::StatusOr<std::string> nproc = NodeProcPerNode(options, host);
    if (!nproc.ok()) return nproc.status();
    plan.names.push_back(host.name);
    plan.nproc.push_back(*nproc);
  }
  if (options.hosts.srun) {
    plan.transports.push_back(TransportOfSrun(plan.names.size(), options, facts));
  } else {
    for (int node = 0; node < count; ++node) {
      plan.transports.push_back(
          TransportTo(node, plan.names[static_cast<std::size_t>(node)], options, facts));
    }
  }
  for (Transport& transport : plan.transports)
    transport.setup = MakeSetup(transport, options, plan, facts);
  return plan;
}

bool NamesThisMachine(absl::string_view name) {
  return std::any_of(
      std::begin(kOwnVariables), std::end(kOwnVariables), [&](absl::string_view own) {
        return absl::ConsumeSuffix(&own, "*") ? absl::StartsWith(name, own) : name == own;
      });
}

std::vector<std::string> EnvironmentForHosts(const std::vector<std::string>& environment,
                                             const std::vector<std::string>& exports) {
  std::vector<std::string> entries;
  for (const std::string& entry : environment) {
    const absl::string_view name = NameOf(entry);
    const bool asked = std::any_of(exports.begin(), exports.end(),
                                   [&](const std::string& other) { return other == name; });
    if (asked || !NamesThisMachine(name)) entries.push_back(entry);
  }
  for (const std::string& entry : exports) {
    if (absl::StrContains(entry, '=')) entries.push_back(entry);
  }
  return entries;
}

std::string HostsPlanText(const HostsPlan& plan) {
  std::string out;
  const std::string port =
      plan.master_port == 0 ? "a free port" : absl::StrCat("port ", plan.master_port);
  if (plan.endpoint.has_value()) {
    absl::StrAppend(&out, "rendezvous: the service at ", EndpointText(*plan.endpoint), "\n");
  } else if (plan.nodes_max > 1) {
    absl::StrAppend(&out, "rendezvous: in the first node (", plan.names.front(), "), at ",
                    plan.master_addr.empty() ? "the address that reaches it" : plan.master_addr,
                    ", ", port, "\n");
  }
  for (const Transport& transport : plan.transports) {
    for (const int node : transport.nodes) {
      const auto index = static_cast<std::size_t>(node);
      absl::StrAppend(&out, node < plan.nodes_max ? absl::StrCat("node ", node) : "spare", "  ",
                      plan.names[index], "  --nproc-per-node ", plan.nproc[index], "  ",
                      TransportName(transport.kind), "\n");
    }
    absl::StrAppend(&out, "  starts: ", absl::StrJoin(Quoted(transport.commands.front()), " "),
                    "\n");
  }
  if (!plan.transports.empty()) {
    const Setup& setup = plan.transports.front().setup;
    absl::StrAppend(&out, "there, in ", setup.folder, ": ddprun ",
                    absl::StrJoin(Quoted(setup.arguments), " "), "\n");
  }
  return out;
}

}  // namespace ddprun
