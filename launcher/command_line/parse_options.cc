// SPDX-License-Identifier: Apache-2.0
#include "launcher/command_line/parse_options.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "launcher/base/flag_names.h"
#include "launcher/base/limits.h"
#include "launcher/command_line/program_sections.h"
#include "launcher/command_line/rdzv_conf.h"
#include "launcher/command_line/scheduler_env.h"
#include "launcher/command_line/total_workers.h"
#include "launcher/options/option_groups.h"
#include "proto/version.h"
#include "rendezvous/base/limits.h"

namespace ddprun {
namespace {

constexpr double kJoinTimeoutSecondsMax = 30.0 * 24 * 3600;
constexpr double kLastCallSecondsMax = std::chrono::seconds(kLastCallMax).count();
constexpr double kLeaseSecondsMax = std::chrono::seconds(kLeaseMax).count();

const std::vector<Flag> kWorkerFlags = {
    {"--nproc-per-node",
     0,
     "N|auto|gpu|cpu|xpu|npu",
     "Number of workers on this node (1), also -ppn and --npernode. gpu, xpu (Intel) and npu "
     "(Ascend): one a device; auto: one a device, without any one a CPU.",
     false,
     {"-ppn", "--ppn", "-npernode", "--npernode"}},
    {"--ntasks",
     'n',
     "N",
     "Number of workers on all nodes together, also -np: with --nnodes, --nproc-per-node or hosts "
     "gives what is missing.",
     false,
     {"-np"}},
    {"--role", 0, "NAME[:COUNT]",
     "ROLE_NAME of the workers (default), and their number on this node. Another program of the "
     "run follows as \": --role NAME[:COUNT] PROGRAM ARGUMENTS\"."},
    {"--ranks-by", 0, "run|role",
     "Count RANK, WORLD_SIZE and LOCAL_RANK over the whole run, or in each role, which then has a "
     "store of its own (role if there are several programs)."},
    {"--module", 'm', nullptr, "PROGRAM is a Python module, as in python3 -m."},
    {"--no-python", 0, nullptr, "Execute PROGRAM itself, even if it ends in .py."},
    {"--run-path", 0, nullptr,
     "Run the script PROGRAM by Python's runpy.run_path: its folder is not in sys.path."},
    {"--preload", 0, "MODULES",
     "Import these Python modules (torch,numpy) once on this node, and fork the workers from "
     "there."},
    {"--wrap", 0, "RANKS:COMMAND",
     "Run the programs of these ranks (0-3,8 or all) under a command: 0:\"gdb --args\"; %r is the "
     "rank. May be repeated.",
     true},
    {"--stdin", 0, "RANK|none|shared",
     "Give stdin to this rank alone, to none, or to all, the first reader getting it (shared)."},
};

const std::vector<Flag> kRendezvousFlags = {
    {"--nnodes", 0, "N", "Number of nodes (1), or MIN:MAX to start with the nodes that are there."},
    {"--node-rank", 0, "R", "Number of this node, 0 to N-1; node 0 hosts the rendezvous."},
    {"--master-addr", 0, "ADDRESS", "Address of node 0."},
    {"--master-port", 0, "PORT", "Port of node 0's rendezvous service (29500)."},
    {"--standalone", 0, nullptr, "Run on this machine alone, without other nodes."},
    {"--rdzv-id", 0, "ID", "Name of the run, the same on all nodes."},
    {"--rdzv-endpoint", 0, "HOST[:PORT]",
     "Address of the rendezvous; hosted here if HOST is this machine (port 29400)."},
    {"--rdzv-backend", 0, "NAME", "static or c10d, as torchrun has them: both mean ddprun's own."},
    {"--rdzv-conf", 0, "KEY=VALUE,...",
     "Settings of torchrun: join_timeout, last_call_timeout, keep_alive_interval, is_host."},
    {"--join-timeout", 0, "SECONDS", "Time to wait for the other nodes (600)."},
    {"--last-call", 0, "SECONDS", "With MIN:MAX: time to wait for more than MIN nodes (30)."},
    {"--lease", 0, "SECONDS",
     "Time without a heartbeat after which a node is lost (10; at most 3600)."},
    {"--local-addr", 0, "ADDRESS",
     "Address at which the other nodes reach this one (found by the route to node 0)."},
    {"--worker-store", 0, "master|agent|rank0",
     "Who serves torch's TCPStore at MASTER_ADDR:MASTER_PORT: the agent of the first node "
     "(master), that of each node, or the program's rank 0."},
};

// Variables that torchrun reads besides PET_*, which override them.
constexpr struct {
  const char* flag;
  const char* variable;
} kOtherVariables[] = {
    {"--signals-to-handle", "TORCHELASTIC_SIGNALS_TO_HANDLE"},
    {"--shutdown-timeout", "TORCH_ELASTIC_SHUTDOWN_TIMEOUT"},
};

void ReadOtherVariables(const GetVariable& get_variable, Values& values) {
  for (const auto& [flag, variable] : kOtherVariables) {
    std::optional<std::string> text = get_variable(variable);
    if (text.has_value()) values.try_emplace(flag, Value{*std::move(text), variable});
  }
}

absl::Status Invalid(const std::string& sentence) { return absl::InvalidArgumentError(sentence); }

void ReadNodes(Reader& reader, Options& options) {
  const Value* value = reader.Find("--nnodes");
  if (value == nullptr) return;
  const std::vector<std::string> parts = absl::StrSplit(value->text, ':');
  int min = 0;
  int max = 0;
  if (parts.size() > 2 || !absl::SimpleAtoi(parts.front(), &min) ||
      !absl::SimpleAtoi(parts.back(), &max) || min < 1 || max < min || max > kNodesMax) {
    return reader.Fail(*value,
                       absl::StrCat("a number of nodes from 1 to ", kNodesMax, ", or MIN:MAX"));
  }
  options.nodes_min = min;
  options.nodes = max;
}

constexpr std::pair<const char*, ProcPerNode> kProcPerNodeNames[] = {
    {"auto", ProcPerNode::kAuto}, {"gpu", ProcPerNode::kGpu}, {"cpu", ProcPerNode::kCpu},
    {"xpu", ProcPerNode::kXpu},   {"npu", ProcPerNode::kNpu},
};

void ReadProcPerNode(Reader& reader, Options& options) {
  const Value* value = reader.Find("--nproc-per-node");
  if (value == nullptr) return;
  for (const auto& [name, kind] : kProcPerNodeNames) {
    if (value->text != name) continue;
    options.proc_per_node = kind;
    return;
  }
  if (!absl::SimpleAtoi(value->text, &options.proc_per_node_number) ||
      options.proc_per_node_number < 1 || options.proc_per_node_number > kLocalWorldSizeMax) {
    reader.Fail(*value, absl::StrCat("a number of workers from 1 to ", kLocalWorldSizeMax,
                                     ", auto, gpu, cpu, xpu or npu; devices of another kind are "
                                     "not counted here: give their number"));
  }
}

bool IsModuleName(absl::string_view name) {
  const std::vector<absl::string_view> parts = absl::StrSplit(name, '.');
  return std::all_of(parts.begin(), parts.end(), [](absl::string_view part) {
    return !part.empty() && !absl::ascii_isdigit(static_cast<unsigned char>(part[0])) &&
           std::all_of(part.begin(), part.end(), [](char c) {
             return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_';
           });
  });
}

void ReadPreload(Reader& reader, Options& options) {
  const Value* value = reader.Find("--preload");
  if (value == nullptr) return;
  for (const absl::string_view part : absl::StrSplit(value->text, ',')) {
    const absl::string_view name = absl::StripAsciiWhitespace(part);
    options.preload.emplace_back(name);
    if (!IsModuleName(name) || options.preload.size() > kPreloadModulesMax) {
      return reader.Fail(*value, absl::StrCat("a list of up to ", kPreloadModulesMax,
                                              " Python modules, as in torch,numpy.random"));
    }
  }
}

// --rdzv-conf, and ddprun's own flags, which override it.
void ReadTimeouts(Reader& reader, Options& options) {
  RdzvConf conf = ReadRdzvConf(reader);
  options.join_timeout = reader.Seconds("--join-timeout", kJoinTimeoutSecondsMax)
                             .value_or(conf.join_timeout.value_or(kJoinTimeoutDefault));
  options.last_call = reader.Seconds("--last-call", kLastCallSecondsMax)
                          .value_or(conf.last_call.value_or(kLastCallDefault));
  options.lease =
      reader.Seconds("--lease", kLeaseSecondsMax).value_or(conf.lease.value_or(kLeaseDefault));
  if (options.lease < kLeaseMin) {
    reader.FailWith(absl::StrCat("--lease ", options.lease.count(), " ms is too short; give ",
                                 kLeaseMin.count(), " ms or more"));
  }
  options.is_host = conf.is_host;
  options.notes = std::move(conf.notes);
}

// The default is torchrun's: with it every program finds at MASTER_ADDR what it finds there, and
// one that opens a store of its own at another port reaches it on all nodes.
WorkerStore ReadWorkerStore(Reader& reader, const GetVariable& get_variable) {
  const bool not_shared = get_variable("TORCH_DISABLE_SHARE_RDZV_TCP_STORE") == "1";
  return reader.Choice<WorkerStore>("--worker-store",
                                    {{"master", WorkerStore::kMaster},
                                     {"agent", WorkerStore::kAgent},
                                     {"rank0", WorkerStore::kRank0}},
                                    not_shared ? WorkerStore::kRank0 : WorkerStore::kMaster);
}

void CheckBackend(Reader& reader) {
  const Value* backend = reader.Find("--rdzv-backend");
  if (backend == nullptr || backend->text == "static" || backend->text == "c10d") return;
  if (absl::StartsWith(backend->text, "etcd")) {
    return reader.FailWith(absl::StrCat(
        backend->source, " ", backend->text,
        " is not needed: for a rendezvous that outlives every node run `ddprun-rendezvous --host "
        "ADDRESS --journal FOLDER` and give --rdzv-endpoint ADDRESS on all nodes"));
  }
  reader.FailWith(
      absl::StrCat(backend->source, " '", backend->text,
                   "' is not known: ddprun has a rendezvous service of its own and takes static "
                   "and c10d as names for it"));
}

void ReadMaster(Reader& reader, Options& options) {
  options.node_rank = reader.Integer("--node-rank", 0, kNodesMax - 1);
  if (reader.Find("--master-addr") != nullptr) {
    std::string address = reader.Text("--master-addr", "an address", "");
    // torchrun requires brackets around an IPv6 address.
    if (absl::StartsWith(address, "[") && absl::EndsWith(address, "]"))
      address = address.substr(1, address.size() - 2);
    options.master_addr = std::move(address);
  }
  options.master_port = reader.Integer("--master-port", 0, 65535);
}

void ReadRunId(Reader& reader, Options& options) {
  options.run_id = reader.Text("--rdzv-id", "a name", "");
  if (options.run_id.find('/') != std::string::npos || options.run_id == "." ||
      options.run_id == "..") {
    reader.Fail(*reader.Find("--rdzv-id"),
                "a name without '/', which it must be as it also names a log folder");
  }
  // torchrun's name for a run without a name; two such runs would merge.
  if (options.run_id == "none") options.run_id.clear();
}

// --standalone overrides every flag and variable on the rendezvous, which a cluster may have set,
// but not a number of nodes from the same source.
void StandAlone(Reader& reader, Options& options) {
  const auto on_command_line = [&](const char* flag) {
    const Value* value = reader.Find(flag);
    return value != nullptr && value->source == flag;
  };
  const bool variables_lose = on_command_line("--standalone");
  if (options.nodes_min > 1 && !(variables_lose && !on_command_line("--nnodes"))) {
    reader.FailWith(absl::StrCat(reader.Find("--standalone")->source, " is for one node, and ",
                                 reader.Find("--nnodes")->source, " is ", options.nodes,
                                 "; leave one of them out"));
  }
  options.nodes = options.nodes_min = 1;
  options.endpoint.reset();
  options.run_id.clear();
  options.is_host.reset();
  if (!variables_lose) return;
  // As in the pod of a TrainJob, where a worker starts a run of its own.
  if (!on_command_line("--node-rank")) options.node_rank.reset();
  if (!on_command_line("--master-addr")) options.master_addr.reset();
  if (!on_command_line("--master-port")) options.master_port.reset();
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

void CheckTogether(Reader& reader, const Options& options) {
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
  if (options.module && options.no_python && !options.run_path) {
    reader.FailWith("--module and --no-python contradict each other; leave one of them out");
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
constexpr std::pair<const char*, const char*> kForeignFlags[] = {
    {"--num-processes", "--ntasks"},
    {"--num-machines", "--nnodes"},
    {"--machine-rank", "--node-rank"},
    {"--main-process-ip", "--master-addr"},
    {"--main-process-port", "--master-port"},
    {"--gpu-ids", "--gpus"},
    {"--num-gpus", "--nproc-per-node"},
    {"--num-nodes", "--nnodes"},
    {"--ppn", "--nproc-per-node"},
    {"--np", "--ntasks"}};

std::string UnknownFlag(const std::string& argument, absl::Span<const Flag> all, Purpose purpose) {
  const std::string name = argument.substr(0, argument.find('='));
  std::string meant;
  for (const auto& [foreign, own] : kForeignFlags) {
    if (WithDashes(name) == foreign) meant = absl::StrCat(" (did you mean ", own, "?)");
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
  constexpr const char* kOwn[] = {"--nproc-per-node", "--nnodes",       "--node-rank",
                                  "--standalone",     "--max-restarts", "--rdzv-endpoint",
                                  "--rdzv-id",        "--rdzv-backend"};
  if (options.program.empty() || !absl::EndsWith(options.program.front(), ".py")) return "";
  for (std::size_t i = 1; i < options.program.size(); ++i) {
    const std::string name = WithDashes(options.program[i].substr(0, options.program[i].find('=')));
    const bool own = std::any_of(std::begin(kOwn), std::end(kOwn),
                                 [&](const char* flag) { return name == flag; });
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
  if (purpose == Purpose::kDoctor) options.doctor = ReadDoctorOptions(reader);
  ReadNodes(reader, options);
  ReadProcPerNode(reader, options);
  ReadMaster(reader, options);
  options.standalone = reader.Switch("--standalone");
  options.affinity = ReadAffinityOptions(reader);
  options.restarts = ReadRestartOptions(reader);
  options.stopping = ReadStopOptions(reader);
  options.hangs = ReadHangOptions(reader);
  options.logs = ReadLogOptions(reader);
  options.observe = ReadObserveOptions(reader);
  options.verdict = ReadVerdictOptions(reader);
  ReadRunId(reader, options);
  options.endpoint = reader.Endpoint("--rdzv-endpoint", kEndpointPortDefault);
  CheckBackend(reader);
  ReadTimeouts(reader, options);
  options.local_addr = reader.Text("--local-addr", "an address", "");
  options.security = reader.Security();
  ReadRole(reader, options);
  options.more_programs = std::move(more_programs);
  options.ranks_by_role = reader.Choice<bool>("--ranks-by", {{"run", false}, {"role", true}},
                                              !options.more_programs.empty());
  options.worker_store = ReadWorkerStore(reader, get_variable);
  options.module = reader.Switch("--module");
  options.no_python = reader.Switch("--no-python");
  options.hosts = ReadHostOptions(reader, values);
  options.run_path = reader.Switch("--run-path");
  ReadPreload(reader, options);
  options.wraps = ReadWraps(reader);
  options.worker_stdin = ReadWorkerStdin(reader);
  options.torchrun = ReadTorchrunOptions(reader);
  if (options.torchrun.logs_events_to_console && options.observe.event_log.empty()) {
    options.observe.event_log = kEventLogStderr;
  }
  options.notes.insert(options.notes.end(), options.torchrun.notes.begin(),
                       options.torchrun.notes.end());
  options.dry_run = reader.Switch("--dry-run");
  if (options.standalone) StandAlone(reader, options);
  ResolvePortZero(reader, options);
  FollowSlurmStep(get_variable, reader, options);
  FollowTotal(reader, options);
  CheckTogether(reader, options);
  CheckSections(reader, options);
  if (!reader.status().ok()) return reader.status();
  return options;
}

// The flags of a run on hosts, rendezvous and security.
std::vector<Flag> MeetingFlags() {
  std::vector<Flag> flags = kRendezvousFlags;
  for (const std::vector<Flag>* more : {&kHostFlags, &kSecurityFlags})
    flags.insert(flags.end(), more->begin(), more->end());
  return flags;
}

}  // namespace

std::vector<Flag> FlagsOfDoctor() {
  std::vector<Flag> flags = kDoctorFlags;
  const std::vector<Flag> more = MeetingFlags();
  flags.insert(flags.end(), more.begin(), more.end());
  return flags;
}

std::vector<FlagTopic> FlagTopics() {
  return {
      {"workers", "Workers", kWorkerFlags},
      {"affinity", "CPUs and GPUs of the workers", kAffinityFlags},
      {"rendezvous", "Rendezvous of the nodes", kRendezvousFlags},
      {"hosts", "Starting all nodes with one command", kHostFlags},
      {"restarts", "Restarts", kRestartFlags},
      {"stopping", "Signals and stopping", kStopFlags},
      {"hangs", "Detecting hung workers", kHangFlags},
      {"logs", "Output and logs", kLogFlags},
      {"observe", "Events and metrics", kObserveFlags},
      {"verdict", "Final report of a run", kVerdictFlags},
      {"security", "Authentication and encryption", kSecurityFlags},
      {"torchrun", "Compatibility with torchrun", kTorchrunFlags},
      {"settings", "Configuration files, dry run, completion, manual page", kSettingsFlags},
  };
}

std::vector<Flag> AllFlags() {
  std::vector<Flag> all;
  for (const FlagTopic& topic : FlagTopics()) {
    all.insert(all.end(), topic.flags.begin(), topic.flags.end());
  }
  return all;
}

absl::StatusOr<std::variant<Options, ShowText>> ParseOptions(
    const std::vector<std::string>& arguments, const GetVariable& get_variable,
    const ReadFile& read_file, Purpose purpose) {
  std::vector<Flag> all = AllFlags();
  if (purpose == Purpose::kDoctor) all.insert(all.end(), kDoctorFlags.begin(), kDoctorFlags.end());
  const std::vector<std::vector<std::string>> sections = SplitSections(arguments);
  absl::StatusOr<ParsedFlags> flags = ParseFlags(all, sections.front());
  if (!flags.ok()) return Invalid(absl::StrCat(flags.status().message(), SeeHelp(purpose)));
  if (flags->help && purpose == Purpose::kDoctor) return ShowText{DoctorHelp(MeetingFlags())};
  if (flags->help) {
    absl::StatusOr<std::string> text =
        HelpText(FlagTopics(), flags->rest.empty() ? "" : flags->rest.front());
    if (!text.ok()) return text.status();
    return ShowText{*std::move(text)};
  }
  if (flags->version) return ShowText{absl::StrCat("ddprun ", kSoftwareVersion, "\n")};
  if (const auto shell = flags->values.find("--print-completion"); shell != flags->values.end()) {
    absl::StatusOr<std::string> text = CompletionScript(FlagTopics(), shell->second.text);
    if (!text.ok()) return text.status();
    return ShowText{*std::move(text)};
  }
  if (flags->values.count("--print-man") != 0) return ShowText{ManPage(FlagTopics())};

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
  AddLogVariables(get_variable, settings->values);
  ReadOtherVariables(get_variable, settings->values);
  absl::StatusOr<Options> options = ReadValues(settings->values, std::move(program),
                                               std::move(more_programs), get_variable, purpose);
  if (!options.ok()) return options.status();
  options->verdict.record_file = get_variable("TORCHELASTIC_ERROR_FILE").value_or("");
  options->variables = std::move(settings->variables);
  options->token_env_file = std::move(settings->token_env_file);
  for (std::string warning :
       {MisplacedFlagWarning(*options, settings->values), WorldOfOneWarning(*options, get_variable),
        InteractiveStepWarning(*options, get_variable)}) {
    if (!warning.empty()) options->warnings.push_back(std::move(warning));
  }
  if (std::string warning = ColonWarning(*options); !warning.empty())
    options->warnings.push_back(std::move(warning));
  return *std::move(options);
}

}  // namespace ddprun
