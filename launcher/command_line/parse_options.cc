// SPDX-License-Identifier: Apache-2.0
#include "launcher/command_line/parse_options.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "launcher/base/flag_names.h"
#include "launcher/command_line/kubernetes_env.h"
#include "launcher/command_line/program_sections.h"
#include "launcher/command_line/scheduler_env.h"
#include "launcher/command_line/slurm_job.h"
#include "launcher/command_line/total_workers.h"
#include "launcher/options/notify_target.h"
#include "launcher/options/run_flags.h"
#include "proto/version.h"
#include "rendezvous/base/limits.h"

namespace ddprun {
namespace {

// Variables that torchrun reads besides PET_*, which override them, and that of a former flag.
constexpr struct {
  FlagName flag;
  const char* variable;
  bool may_be_empty;
} kOtherVariables[] = {
    {"--signals-to-handle"_flag, "TORCHELASTIC_SIGNALS_TO_HANDLE", true},
    {"--shutdown-timeout"_flag, "TORCH_ELASTIC_SHUTDOWN_TIMEOUT", true},
    {"--log-line-prefix-template"_flag, "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE", false},
    {"--preempt-notice"_flag, "PET_NOTICE_ON_FILE", false},
};

void ReadOtherVariables(const GetVariable& get_variable, Values& values) {
  for (const auto& [flag, variable, may_be_empty] : kOtherVariables) {
    std::optional<std::string> text = get_variable(variable);
    if (text.has_value() && (may_be_empty || !text->empty()))
      values.try_emplace(flag.text, Value{*std::move(text), variable});
  }
}

absl::Status Invalid(const std::string& sentence) { return absl::InvalidArgumentError(sentence); }

// --standalone overrides every flag and variable on the rendezvous, which a cluster may have set,
// but not a number of nodes from the same source.
void StandAlone(Reader& reader, Options& options) {
  const auto on_command_line = [&](FlagName flag) {
    const Value* value = reader.Find(flag);
    return value != nullptr && value->source == flag.text;
  };
  const bool variables_lose = on_command_line("--standalone"_flag);
  if (options.nodes_min > 1 && !(variables_lose && !on_command_line("--nnodes"_flag))) {
    reader.FailWith(absl::StrCat(reader.Find("--standalone"_flag)->source, " is for one node, and ",
                                 reader.Find("--nnodes"_flag)->source, " is ", options.nodes,
                                 "; leave one of them out"));
  }
  options.nodes = options.nodes_min = 1;
  options.endpoint.reset();
  options.run_id.clear();
  options.is_host.reset();
  if (!variables_lose) return;
  // As in the pod of a TrainJob, where a worker starts a run of its own.
  if (!on_command_line("--node-rank"_flag)) options.node_rank.reset();
  if (!on_command_line("--master-addr"_flag)) options.master_addr.reset();
  if (!on_command_line("--master-port"_flag)) options.master_port.reset();
}

// Port 0 means any free port: useful only where no other node must know it.
void ResolvePortZero(Reader& reader, Options& options) {
  const bool endpoint = options.endpoint.has_value() && options.endpoint->port == 0;
  if (!endpoint && options.master_port != 0) return;
  if (options.nodes > 1) {
    reader.FailWith(absl::StrCat(endpoint ? "--rdzv-endpoint" : "--master-port",
                                 " with port 0 is any free port, which other nodes cannot know; "
                                 "give a number from 1 to 65535"));
  }
  if (endpoint) options.endpoint.reset();
  if (options.master_port == 0) options.master_port.reset();
}

void CheckStandbyNodes(Reader& reader, const Options& options) {
  if (options.standby_nodes == 0) return;
  if (!options.journal.empty()) {
    reader.FailWith(
        "--standby-nodes and --journal contradict each other: a journal in etcd needs no copies on "
        "nodes; leave one of them out");
  }
  const std::size_t services = options.endpoint ? 1 + options.endpoint->others.size() : 0;
  if (services == 1 + static_cast<std::size_t>(options.standby_nodes) && !options.run_id.empty())
    return;
  reader.FailWith(absl::StrCat(
      "--standby-nodes ", options.standby_nodes, " needs --rdzv-id, and --rdzv-endpoint with ",
      1 + options.standby_nodes,
      " machines: the first one has the service, the others keep copies; e.g. --rdzv-endpoint "
      "a:29400,b:29400 --rdzv-id job7 --standby-nodes 1"));
}

void CheckTogether(Reader& reader, const Options& options) {
  reader.Check(CheckEtcdTls(options.journal, options.journal_tls));
  if (!options.journal.empty() && (!options.endpoint.has_value() || options.run_id.empty())) {
    reader.FailWith(
        "--journal needs --rdzv-endpoint with the machines that have a service, and --rdzv-id; "
        "e.g. --rdzv-endpoint a:29400,b:29400,c:29400 --rdzv-id job7");
  }
  CheckStandbyNodes(reader, options);
  if (options.lease < kLeaseMin) {
    reader.FailWith(absl::StrCat("--lease ", options.lease.count(), " ms is too short; give ",
                                 kLeaseMin.count(), " ms or more"));
  }
  if (options.node_rank.has_value() && *options.node_rank >= options.nodes) {
    reader.FailWith(absl::StrCat("--node-rank ", *options.node_rank, " is not below --nnodes ",
                                 options.nodes, "; nodes are numbered from 0"));
  }
  if (options.nodes > 1 && !options.endpoint.has_value() && !options.hosts.asked()) {
    if (!options.master_addr.has_value()) {
      reader.FailWith(
          absl::StrCat("--nnodes ", options.nodes,
                       " needs to know where node 0 is: give --master-addr, or --rdzv-endpoint"));
    } else if (!options.node_rank.has_value()) {
      reader.FailWith(absl::StrCat("--nnodes ", options.nodes,
                                   " with --master-addr needs --node-rank, 0 to ",
                                   options.nodes - 1, ", another one on each node"));
    }
  }
  if (!options.topology_file.empty() && options.rank_order != RankOrder::kTopology) {
    reader.FailWith(
        "--topology-file is only read with --rank-order topology; add that flag, or leave it out");
  }
  if (options.module && options.no_python && !options.run_path) {
    reader.FailWith("--module and --no-python contradict each other; leave one of them out");
  }
  if (options.detach && options.worker_stdin.to == WorkerStdin::To::kRank) {
    reader.FailWith(
        "--detach and --stdin contradict each other: nobody types into a run in the background; "
        "leave one of them out");
  }
  if (options.doctor.has_value()) {
    if (options.dry_run && !options.hosts.asked())
      reader.FailWith("ddprun doctor starts nothing in any case; leave --dry-run out");
    return;
  }
  if (options.program.empty()) reader.FailWith("no program is named; see ddprun --help");
}

std::string SeeHelp(Purpose purpose) {
  return purpose == Purpose::kDoctor ? "; see ddprun doctor --help" : "; see ddprun --help";
}

// Flags of other launchers (accelerate, deepspeed, mpirun), and what is called so here.
constexpr std::pair<const char*, FlagName> kForeignFlags[] = {
    {"--num-processes", "--ntasks"_flag},
    {"--num-machines", "--nnodes"_flag},
    {"--machine-rank", "--node-rank"_flag},
    {"--main-process-ip", "--master-addr"_flag},
    {"--main-process-port", "--master-port"_flag},
    {"--gpu-ids", "--gpus"_flag},
    {"--num-gpus", "--nproc-per-node"_flag},
    {"--num-nodes", "--nnodes"_flag},
    {"--ppn", "--nproc-per-node"_flag},
    {"--np", "--ntasks"_flag}};

std::string UnknownFlag(const std::string& argument, absl::Span<const Flag> all, Purpose purpose) {
  const std::string name = argument.substr(0, argument.find('='));
  std::string meant;
  for (const auto& [foreign, own] : kForeignFlags) {
    if (WithDashes(name) == foreign) meant = absl::StrCat(" (did you mean ", own.text, "?)");
  }
  if (meant.empty()) {
    std::vector<std::string> names;
    for (const Flag& flag : all) names.emplace_back(flag.name);
    meant = DidYouMean(name, names);
  }
  return absl::StrCat("unknown flag ", name, meant, SeeHelp(purpose));
}

// A flag that hardly any script has itself, and that was not given to ddprun. Other programs than
// scripts may be launchers, too.
std::string MisplacedFlagWarning(const Options& options, const Values& values) {
  constexpr FlagName kOwn[] = {
      "--nproc-per-node"_flag, "--nnodes"_flag,        "--node-rank"_flag, "--standalone"_flag,
      "--max-restarts"_flag,   "--rdzv-endpoint"_flag, "--rdzv-id"_flag,   "--rdzv-backend"_flag};
  if (options.program.empty() || !absl::EndsWith(options.program.front(), ".py")) return "";
  for (std::size_t i = 1; i < options.program.size(); ++i) {
    const std::string name = WithDashes(options.program[i].substr(0, options.program[i].find('=')));
    const bool own = std::any_of(std::begin(kOwn), std::end(kOwn),
                                 [&](FlagName flag) { return name == flag.text; });
    if (own && !values.contains(name)) {
      return absl::StrCat(name, " stands behind the program ", options.program.front(),
                          ", which gets it; flags of ddprun stand before the program");
    }
  }
  return "";
}

absl::StatusOr<Options> ReadValues(const Values& values, std::vector<std::string> program,
                                   std::vector<ProgramSection> more_programs,
                                   const GetVariable& get_variable, Purpose purpose) {
  Reader reader(values);
  Options options;
  options.program = std::move(program);
  options.more_programs = std::move(more_programs);
  options.ranks_by_role = !options.more_programs.empty();
  // The default is torchrun's: with it every program finds at MASTER_ADDR what it finds there, and
  // one that opens a store of its own at another port reaches it on all nodes.
  if (get_variable("TORCH_DISABLE_SHARE_RDZV_TCP_STORE") == "1")
    options.worker_store = WorkerStore::kRank0;
  if (purpose == Purpose::kDoctor) reader.Read(kDoctorFlags, options.doctor.emplace());
  for (const FlagTopic& topic : kFlagTopics) reader.Read(topic.flags, options);
  reader.Check(CheckSecurityOptions(options.security));
  FinishHosts(reader, values, options);
  FinishRestarts(reader, options);
  FinishStopping(reader, options);
  if (options.logs_events_to_console && options.observe.event_log.empty())
    options.observe.event_log = kEventLogStderr;
  if (options.standalone) StandAlone(reader, options);
  ResolvePortZero(reader, options);
  FollowSlurmStep(get_variable, reader, options);
  FollowKubernetesPod(get_variable, reader, options);
  FollowTotal(reader, options);
  CheckTogether(reader, options);
  if (options.rank_order != RankOrder::kJoin && options.node_rank.has_value() &&
      options.asks_for_rank) {
    options.notes.push_back(
        absl::StrCat("--rank-order does not move this node, which asks for rank ",
                     *options.node_rank, " (--node-rank)"));
  }
  if (options.observe.web_control && !options.observe.web_port.has_value())
    reader.FailWith("--web-control needs --web");
  if (!options.observe.notify.empty())
    reader.Check(ParseNotifyTarget(options.observe.notify).status());
  if (options.observe.slurm_comment && !options.hosts.asked() &&
      !get_variable("SLURM_JOB_ID").has_value()) {
    options.notes.push_back("--slurm-comment has no effect here: SLURM_JOB_ID is not set");
  }
  CheckSections(reader, options);
  if (!reader.status().ok()) return reader.status();
  return options;
}

}  // namespace

std::vector<Flag> AllFlags() {
  std::vector<Flag> all;
  for (const FlagTopic& topic : kFlagTopics)
    all.insert(all.end(), topic.flags.begin(), topic.flags.end());
  return all;
}

absl::StatusOr<std::variant<Options, ShowText>> ParseOptions(
    const std::vector<std::string>& arguments, const GetVariable& get_variable,
    const ReadFile& read_file, Purpose purpose) {
  std::vector<Flag> all = AllFlags();
  if (purpose == Purpose::kDoctor)
    all.insert(all.end(), std::begin(kDoctorFlags), std::end(kDoctorFlags));
  const std::vector<std::vector<std::string>> sections = SplitSections(arguments);
  absl::StatusOr<ParsedFlags> flags = ParseFlags(all, sections.front());
  if (!flags.ok()) return Invalid(absl::StrCat(flags.status().message(), SeeHelp(purpose)));
  if (flags->help && purpose == Purpose::kDoctor) return ShowText{DoctorHelp()};
  if (flags->help) {
    absl::StatusOr<std::string> text = HelpText(flags->rest.empty() ? "" : flags->rest.front());
    if (!text.ok()) return text.status();
    return ShowText{*std::move(text)};
  }
  if (flags->version) return ShowText{absl::StrCat("ddprun ", kSoftwareVersion, "\n")};
  if (const auto shell = flags->values.find("--print-completion"_flag.text);
      shell != flags->values.end()) {
    absl::StatusOr<std::string> text = CompletionScript(shell->second.text);
    if (!text.ok()) return text.status();
    return ShowText{*std::move(text)};
  }
  if (flags->values.count("--print-man"_flag.text) != 0) return ShowText{ManPage()};

  std::vector<std::string> program = std::move(flags->rest);
  if (!program.empty() && program.front() == "--") {
    program.erase(program.begin());
  } else if (!program.empty() && program.front().size() > 1 && program.front()[0] == '-') {
    return Invalid(UnknownFlag(program.front(), all, purpose));
  }
  absl::StatusOr<Settings> settings =
      GatherSettings(all, std::move(flags->values), get_variable, read_file);
  if (!settings.ok()) return settings.status();
  if (program.empty()) program = std::move(settings->program);
  std::vector<ProgramSection> more_programs;
  for (auto section = sections.begin() + 1; section != sections.end(); ++section) {
    absl::StatusOr<ProgramSection> parsed = ParseSection(*section);
    if (!parsed.ok()) return parsed.status();
    more_programs.push_back(*std::move(parsed));
  }
  ReadOtherVariables(get_variable, settings->values);
  absl::StatusOr<Options> options = ReadValues(settings->values, std::move(program),
                                               std::move(more_programs), get_variable, purpose);
  if (!options.ok()) return options.status();
  options->verdict.record_file = get_variable("TORCHELASTIC_ERROR_FILE").value_or("");
  FollowTerminationMessage(get_variable, *options);
  options->variables = std::move(settings->variables);
  options->token_env_file = std::move(settings->token_env_file);
  for (std::string warning :
       {MisplacedFlagWarning(*options, settings->values), WorldOfOneWarning(*options, get_variable),
        InteractiveStepWarning(*options, get_variable), IdleNodesWarning(*options, get_variable)}) {
    if (!warning.empty()) options->warnings.push_back(std::move(warning));
  }
  if (std::string warning = ColonWarning(*options); !warning.empty())
    options->warnings.push_back(std::move(warning));
  return *std::move(options);
}

}  // namespace ddprun
