// SPDX-License-Identifier: Apache-2.0
#include "launcher/options.h"

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "launcher/limits.h"
#include "launcher/slurm.h"
#include "proto/version.h"
#include "rendezvous/limits.h"

namespace ddprun {
namespace {

constexpr double kJoinTimeoutSecondsMax = 30.0 * 24 * 3600;
constexpr double kLastCallSecondsMax = std::chrono::seconds(kLeaseMax).count();
constexpr double kLeaseSecondsMax = std::chrono::seconds(kLeaseMax).count();

const std::vector<Flag> kWorkerFlags = {
    {"--nproc-per-node", 0, "N|auto|gpu|cpu",
     "workers on this node (1); auto: one a GPU, else one a CPU"},
    {"--role", 0, "NAME", "ROLE_NAME of the workers (default)"},
    {"--module", 'm', nullptr, "PROGRAM is a Python module, as in python3 -m"},
    {"--no-python", 0, nullptr, "run PROGRAM itself, also if it ends in .py"},
};

const std::vector<Flag> kRendezvousFlags = {
    {"--nnodes", 0, "N",
     "number of nodes (1), or MIN:MAX for a run that starts with what is there"},
    {"--node-rank", 0, "R", "this node's number, 0 to N-1; node 0 hosts the rendezvous"},
    {"--master-addr", 0, "ADDRESS", "address of node 0"},
    {"--master-port", 0, "PORT", "port of node 0's rendezvous service (29500)"},
    {"--standalone", 0, nullptr, "this machine alone, nothing to meet"},
    {"--rdzv-id", 0, "ID", "name of the run, the same on all nodes"},
    {"--rdzv-endpoint", 0, "HOST[:PORT]",
     "where the rendezvous is; hosted here if HOST is this machine (port 29400)"},
    {"--rdzv-backend", 0, "NAME", "static or c10d, for torchrun's sake: both mean ddprun's own"},
    {"--rdzv-conf", 0, "KEY=VALUE,...", "join_timeout (or timeout), last_call_timeout, in seconds"},
    {"--join-timeout", 0, "SECONDS", "how long to wait for the other nodes (600)"},
    {"--last-call", 0, "SECONDS", "with MIN:MAX: how long to wait for more than MIN nodes (30)"},
    {"--lease", 0, "SECONDS", "a node that is not heard of for this long is lost (10)"},
    {"--local-addr", 0, "ADDRESS",
     "where the other nodes reach this one (found by the route to node 0)"},
};

std::vector<Flag> AllFlags() {
  std::vector<Flag> all;
  for (const FlagTopic& topic : FlagTopics()) {
    all.insert(all.end(), topic.flags.begin(), topic.flags.end());
  }
  return all;
}

std::string HelpText() {
  std::string text =
      "Usage: ddprun [FLAGS] PROGRAM [ARGUMENTS...]\n\n"
      "Starts PROGRAM as the workers of a distributed run, keeps watch over them on every node, "
      "and ends with the\n"
      "exit code of the first one that failed. PROGRAM: `train` or another program beside ddprun "
      "or in PATH, a path,\n"
      "a .py file, or with -m a Python module.\n`ddprun status` shows what a rendezvous service "
      "knows (ddprun status --help).\n\n";
  for (const FlagTopic& topic : FlagTopics()) {
    absl::StrAppend(&text, topic.title, ":\n", FlagsHelp(topic.flags), "\n");
  }
  absl::StrAppend(
      &text,
      "  --version                         print the version\n"
      "  -h, --help                        print this\n\n"
      "Flags may be spelled with _ for -. A variable PET_<NAME>, as PET_NNODES, is a flag's "
      "default.\n\n"
      "  ddprun --standalone --nproc-per-node 2 train --epochs 1\n"
      "  ddprun -H node1:8,node2:8 train\n"
      "  ddprun --nnodes 2 --node-rank 0 --master-addr 10.0.0.1 --nproc-per-node gpu train\n");
  return text;
}

// What torchrun reads beside PET_*: after that, before the default.
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

void ReadProcPerNode(Reader& reader, Options& options) {
  const Value* value = reader.Find("--nproc-per-node");
  if (value == nullptr) return;
  if (value->text == "auto") {
    options.proc_per_node = ProcPerNode::kAuto;
  } else if (value->text == "gpu") {
    options.proc_per_node = ProcPerNode::kGpu;
  } else if (value->text == "cpu") {
    options.proc_per_node = ProcPerNode::kCpu;
  } else if (!absl::SimpleAtoi(value->text, &options.proc_per_node_number) ||
             options.proc_per_node_number < 1 ||
             options.proc_per_node_number > kLocalWorldSizeMax) {
    reader.Fail(*value, absl::StrCat("a number of workers from 1 to ", kLocalWorldSizeMax,
                                     ", auto, gpu or cpu"));
  }
}

void ReadTimeouts(Reader& reader, Options& options) {
  options.join_timeout = kJoinTimeoutDefault;
  options.last_call = kLastCallDefault;
  if (const Value* value = reader.Find("--rdzv-conf"); value != nullptr && !value->text.empty()) {
    for (const absl::string_view pair : absl::StrSplit(value->text, ',')) {
      const std::pair<std::string, std::string> key_value =
          absl::StrSplit(pair, absl::MaxSplits('=', 1));
      const std::string key(absl::StripAsciiWhitespace(key_value.first));
      const bool join = key == "join_timeout" || key == "timeout";
      if (!join && key != "last_call_timeout") {
        return reader.FailWith(absl::StrCat(
            value->source, " has the key '", key,
            "', and ddprun knows join_timeout, timeout and last_call_timeout, in seconds"));
      }
      (join ? options.join_timeout : options.last_call) = reader.Seconds(
          {key_value.second, absl::StrCat(value->source, " ", key)}, kJoinTimeoutSecondsMax);
    }
  }
  options.join_timeout =
      reader.Seconds("--join-timeout", kJoinTimeoutSecondsMax).value_or(options.join_timeout);
  options.last_call =
      reader.Seconds("--last-call", kLastCallSecondsMax).value_or(options.last_call);
  options.lease = reader.Seconds("--lease", kLeaseSecondsMax).value_or(kLeaseDefault);
  if (options.lease < kLeaseMin) {
    reader.FailWith(absl::StrCat("--lease ", options.lease.count(), " ms is too short; give ",
                                 kLeaseMin.count(), " ms or more"));
  }
}

void CheckTogether(Reader& reader, const Options& options) {
  if (options.standalone && options.nodes > 1) {
    reader.FailWith(absl::StrCat("--standalone is for one node, and --nnodes is ", options.nodes,
                                 "; leave one of them out"));
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
  if (options.module && options.no_python) {
    reader.FailWith("--module and --no-python contradict each other; leave one of them out");
  }
  if (options.program.empty()) reader.FailWith("no program is named; see ddprun --help");
}

absl::StatusOr<Options> ReadValues(const Values& values, std::vector<std::string> program,
                                   const GetVariable& get_variable) {
  Reader reader(values);
  Options options;
  options.program = std::move(program);
  ReadNodes(reader, options);
  ReadProcPerNode(reader, options);
  options.node_rank = reader.Integer("--node-rank", 0, kNodesMax - 1);
  if (reader.Find("--master-addr") != nullptr)
    options.master_addr = reader.Text("--master-addr", "an address", "");
  options.master_port = reader.Integer("--master-port", 1, 65535);
  options.standalone = reader.Switch("--standalone");
  options.affinity = ReadAffinityOptions(reader);
  options.restarts = ReadRestartOptions(reader);
  options.stopping = ReadStopOptions(reader);
  options.logs = ReadLogOptions(reader);
  options.run_id = reader.Text("--rdzv-id", "a name", "");
  if (options.run_id.find('/') != std::string::npos || options.run_id == "." ||
      options.run_id == "..") {
    reader.Fail(*reader.Find("--rdzv-id"),
                "a name without '/', which it must be as it also names a log folder");
  }
  options.endpoint = reader.Endpoint("--rdzv-endpoint", kEndpointPortDefault);
  const Value* backend = reader.Find("--rdzv-backend");
  if (backend != nullptr && backend->text != "static" && backend->text != "c10d") {
    reader.FailWith(absl::StrCat(
        backend->source, " '", backend->text,
        "' is not known: ddprun has a rendezvous service of its own and takes static and "
        "c10d as names for it"));
  }
  ReadTimeouts(reader, options);
  options.local_addr = reader.Text("--local-addr", "an address", "");
  options.security = reader.Security();
  options.role = reader.Text("--role", "a name", "default");
  options.module = reader.Switch("--module");
  options.no_python = reader.Switch("--no-python");
  options.hosts = ReadHostOptions(reader, values);
  FollowSlurmStep(get_variable, reader, options);
  CheckTogether(reader, options);
  if (!reader.status().ok()) return reader.status();
  return options;
}

}  // namespace

std::vector<FlagTopic> FlagTopics() {
  return {
      {"workers", "Workers", kWorkerFlags},
      {"affinity", "CPUs and GPUs of the workers", kAffinityFlags},
      {"rendezvous", "Where nodes meet", kRendezvousFlags},
      {"hosts", "All nodes by one command", kHostFlags},
      {"restarts", "Restarts", kRestartFlags},
      {"stopping", "Signals and stopping", kStopFlags},
      {"logs", "Output and logs", kLogFlags},
      {"security", "Who gets in", kSecurityFlags},
  };
}

bool UsesNetwork(const Options& options) {
  return options.nodes > 1 || (options.endpoint.has_value() && !options.standalone);
}

absl::StatusOr<std::variant<Options, ShowText>> ParseOptions(
    const std::vector<std::string>& arguments, const GetVariable& get_variable) {
  absl::StatusOr<ParsedFlags> flags = ParseFlags(AllFlags(), arguments, get_variable);
  if (!flags.ok()) return Invalid(absl::StrCat(flags.status().message(), "; see ddprun --help"));
  if (flags->help) return ShowText{HelpText()};
  if (flags->version) return ShowText{absl::StrCat("ddprun ", kSoftwareVersion, "\n")};

  std::vector<std::string> program = std::move(flags->rest);
  if (!program.empty() && program.front() == "--") {
    program.erase(program.begin());
  } else if (!program.empty() && program.front().size() > 1 && program.front()[0] == '-') {
    return Invalid(absl::StrCat("unknown flag ", program.front(), "; see ddprun --help"));
  }
  ReadOtherVariables(get_variable, flags->values);
  absl::StatusOr<Options> options = ReadValues(flags->values, std::move(program), get_variable);
  if (!options.ok()) return options.status();
  return *std::move(options);
}

}  // namespace ddprun
