// SPDX-License-Identifier: Apache-2.0
#include "launcher/options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <map>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "launcher/limits.h"
#include "proto/version.h"
#include "rendezvous/limits.h"

namespace ddprun {
namespace {

constexpr int kRestartsMax = 1'000'000;
constexpr double kJoinTimeoutSecondsMax = 30.0 * 24 * 3600;
constexpr double kLastCallSecondsMax = std::chrono::seconds(kLeaseMax).count();
constexpr double kLeaseSecondsMax = std::chrono::seconds(kLeaseMax).count();
// The service takes a node that has not stopped within kStopTimeout out of the run, and SIGKILL
// comes after SIGTERM.
constexpr double kTermTimeoutSecondsMax =
    static_cast<double>((kStopTimeout - kKillTimeout).count());

// Values as texts, from the command line or a PET_ variable; CLI11 only finds them. Checked by
// Reader below, so that each error is a sentence of ours and says where the value came from.
struct Flag {
  const char* name;   // "--nproc-per-node"
  char letter;        // of a short form, or 0
  const char* value;  // for --help; nullptr: a switch
  const char* help;
};

constexpr Flag kFlags[] = {
    {"--nnodes", 0, "N",
     "number of nodes (1), or MIN:MAX for a run that starts with what is there"},
    {"--nproc-per-node", 0, "N|auto|gpu|cpu",
     "workers on this node (1); auto: one a GPU, else one a CPU"},
    {"--node-rank", 0, "R", "this node's number, 0 to N-1; node 0 hosts the rendezvous"},
    {"--master-addr", 0, "ADDRESS", "address of node 0"},
    {"--master-port", 0, "PORT", "port of node 0's rendezvous service (29500)"},
    {"--standalone", 0, nullptr, "this machine alone, nothing to meet"},
    {"--max-restarts", 0, "N", "start all workers again after a failure, up to N times (0)"},
    {"--log-dir", 0, "DIR", "keep each worker's output in DIR/RUN/round_N/rank_R"},
    {"--rdzv-id", 0, "ID", "name of the run, the same on all nodes"},
    {"--rdzv-endpoint", 0, "HOST[:PORT]",
     "where the rendezvous is; hosted here if HOST is this machine (port 29400)"},
    {"--rdzv-backend", 0, "NAME", "static or c10d, for torchrun's sake: both mean ddprun's own"},
    {"--rdzv-conf", 0, "KEY=VALUE,...", "join_timeout (or timeout), last_call_timeout, in seconds"},
    {"--join-timeout", 0, "SECONDS", "how long to wait for the other nodes (600)"},
    {"--last-call", 0, "SECONDS", "with MIN:MAX: how long to wait for more than MIN nodes (30)"},
    {"--lease", 0, "SECONDS", "a node that is not heard of for this long is lost (10)"},
    {"--term-timeout", 0, "SECONDS", "between SIGTERM and SIGKILL when workers are stopped (10)"},
    {"--local-addr", 0, "ADDRESS",
     "where the other nodes reach this one (found by the route to node 0)"},
    {"--token-file", 0, "FILE",
     "the run's secret, the same on all nodes (DDPRUN_TOKEN, or ~/.config/ddprun/token)"},
    {"--tls-cert", 0, "FILE",
     "this node's own certificate, in place of the secret; with the next two"},
    {"--tls-key", 0, "FILE", "its private key"},
    {"--tls-ca", 0, "FILE", "who must have signed the others' certificates"},
    {"--insecure", 0, nullptr, "plain text without a secret, on all nodes"},
    {"--role", 0, "NAME", "ROLE_NAME of the workers (default)"},
    {"--module", 'm', nullptr, "PROGRAM is a Python module, as in python3 -m"},
    {"--no-python", 0, nullptr, "run PROGRAM itself, also if it ends in .py"},
};

std::string HelpText() {
  std::string text =
      "Usage: ddprun [FLAGS] PROGRAM [ARGUMENTS...]\n\n"
      "Starts PROGRAM as the workers of a distributed run, keeps watch over them on every node, "
      "and ends with the\n"
      "exit code of the first one that failed. PROGRAM: `train` or another program beside ddprun "
      "or in PATH, a path,\n"
      "a .py file, or with -m a Python module.\n\n";
  for (const Flag& flag : kFlags) {
    std::string left = flag.letter != 0
                           ? absl::StrCat("  -", std::string(1, flag.letter), ", ", flag.name)
                           : absl::StrCat("  ", flag.name);
    if (flag.value != nullptr) absl::StrAppend(&left, " ", flag.value);
    left.resize(std::max<std::size_t>(left.size() + 2, 36), ' ');
    absl::StrAppend(&text, left, flag.help, "\n");
  }
  absl::StrAppend(
      &text,
      "  --version                         print the version\n"
      "  -h, --help                        print this\n\n"
      "Flags may be spelled with _ for -. A variable PET_<NAME>, as PET_NNODES, is a flag's "
      "default.\n\n"
      "  ddprun --standalone --nproc-per-node 2 train --epochs 1\n"
      "  ddprun --nnodes 2 --node-rank 0 --master-addr 10.0.0.1 --nproc-per-node gpu train\n");
  return text;
}

absl::Status Invalid(const std::string& sentence) { return absl::InvalidArgumentError(sentence); }

struct Value {
  std::string text;
  std::string source;  // "--nnodes" or "PET_NNODES"
};
using Values = std::map<std::string, Value>;  // by the flag's name

// "--nproc-per-node" -> "PET_NPROC_PER_NODE"
std::string VariableName(const std::string& flag) {
  return absl::StrCat("PET_",
                      absl::AsciiStrToUpper(absl::StrReplaceAll(flag.substr(2), {{"-", "_"}})));
}

// Checks texts and turns them into values; keeps the first error.
class Reader {
 public:
  explicit Reader(const Values& values) : values_(values) {}

  const Value* Find(const char* flag) const {
    const auto found = values_.find(flag);
    return found == values_.end() ? nullptr : &found->second;
  }

  bool Switch(const char* flag) {
    const Value* value = Find(flag);
    if (value == nullptr) return false;
    int number = 0;
    if (absl::SimpleAtoi(value->text, &number)) return number != 0;
    bool answer = false;
    if (!absl::SimpleAtob(value->text, &answer)) Fail(*value, "0 or 1");
    return answer;
  }

  std::optional<int> Integer(const char* flag, int min, int max) {
    const Value* value = Find(flag);
    if (value == nullptr) return std::nullopt;
    int number = 0;
    if (!absl::SimpleAtoi(value->text, &number) || number < min || number > max) {
      Fail(*value, absl::StrCat("a whole number from ", min, " to ", max));
    }
    return number;
  }

  std::string Text(const char* flag, const char* needed, const std::string& otherwise) {
    const Value* value = Find(flag);
    if (value == nullptr) return otherwise;
    if (value->text.empty()) Fail(*value, needed);
    return value->text;
  }

  std::optional<std::chrono::milliseconds> Seconds(const char* flag, double max) {
    const Value* value = Find(flag);
    if (value == nullptr) return std::nullopt;
    return Seconds(*value, max);
  }

  std::chrono::milliseconds Seconds(const Value& value, double max) {
    double seconds = 0;
    if (!absl::SimpleAtod(value.text, &seconds) || !(seconds > 0) || seconds > max) {
      Fail(value,
           absl::StrCat("a number of seconds above 0 and up to ", static_cast<long long>(max)));
      return {};
    }
    return std::chrono::milliseconds(
        std::max<std::int64_t>(1, static_cast<std::int64_t>(seconds * 1000)));
  }

  void Fail(const Value& value, const std::string& needed) {
    FailWith(absl::StrCat(value.source, " '", value.text, "' is not ", needed));
  }
  void FailWith(const std::string& sentence) {
    if (status_.ok()) status_ = Invalid(sentence);
  }
  const absl::Status& status() const { return status_; }

 private:
  const Values& values_;
  absl::Status status_;
};

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

// "host", "host:port", "[v6]", "[v6]:port", or a bare IPv6 address.
void ReadEndpoint(Reader& reader, Options& options) {
  const Value* value = reader.Find("--rdzv-endpoint");
  if (value == nullptr || value->text.empty()) return;
  std::string host = value->text;
  std::string port;
  bool well_formed = true;
  if (absl::StartsWith(host, "[")) {
    const std::size_t end = host.find(']');
    well_formed = end != std::string::npos && (end + 1 == host.size() || host[end + 1] == ':');
    if (well_formed) {
      if (end + 1 < host.size()) port = host.substr(end + 2);
      well_formed = end + 1 == host.size() || !port.empty();
      host = host.substr(1, end - 1);
    }
  } else if (std::count(host.begin(), host.end(), ':') == 1) {
    const std::size_t colon = host.find(':');
    port = host.substr(colon + 1);
    host.resize(colon);
    well_formed = !port.empty();
  }
  Endpoint endpoint{host, kEndpointPortDefault};
  if (!port.empty())
    well_formed =
        absl::SimpleAtoi(port, &endpoint.port) && endpoint.port > 0 && endpoint.port < 65536;
  if (!well_formed || host.empty()) {
    return reader.Fail(*value,
                       "HOST or HOST:PORT (an IPv6 address with a port in brackets: [::1]:29400)");
  }
  options.endpoint = endpoint;
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
  options.term_timeout =
      reader.Seconds("--term-timeout", kTermTimeoutSecondsMax).value_or(kTermTimeoutDefault);
}

void ReadSecurity(Reader& reader, Options& options) {
  SecurityOptions& security = options.security;
  security.token_file = reader.Text("--token-file", "a file", "");
  security.tls_cert = reader.Text("--tls-cert", "a file", "");
  security.tls_key = reader.Text("--tls-key", "a file", "");
  security.tls_ca = reader.Text("--tls-ca", "a file", "");
  security.insecure = reader.Switch("--insecure");
  const absl::Status status = CheckSecurityOptions(security);
  if (!status.ok()) reader.FailWith(std::string(status.message()));
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
  if (options.nodes > 1 && !options.endpoint.has_value()) {
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

absl::StatusOr<Options> ReadValues(const Values& values, std::vector<std::string> program) {
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
  options.max_restarts = reader.Integer("--max-restarts", 0, kRestartsMax).value_or(0);
  options.log_dir = reader.Text("--log-dir", "a folder", "");
  options.run_id = reader.Text("--rdzv-id", "a name", "");
  if (options.run_id.find('/') != std::string::npos || options.run_id == "." ||
      options.run_id == "..") {
    reader.Fail(*reader.Find("--rdzv-id"),
                "a name without '/', which it must be as it also names a log folder");
  }
  ReadEndpoint(reader, options);
  const Value* backend = reader.Find("--rdzv-backend");
  if (backend != nullptr && backend->text != "static" && backend->text != "c10d") {
    reader.FailWith(absl::StrCat(
        backend->source, " '", backend->text,
        "' is not known: ddprun has a rendezvous service of its own and takes static and "
        "c10d as names for it"));
  }
  ReadTimeouts(reader, options);
  options.local_addr = reader.Text("--local-addr", "an address", "");
  ReadSecurity(reader, options);
  options.role = reader.Text("--role", "a name", "default");
  options.module = reader.Switch("--module");
  options.no_python = reader.Switch("--no-python");
  CheckTogether(reader, options);
  if (!reader.status().ok()) return reader.status();
  return options;
}

}  // namespace

bool UsesNetwork(const Options& options) {
  return options.nodes > 1 || (options.endpoint.has_value() && !options.standalone);
}

absl::StatusOr<std::variant<Options, ShowText>> ParseOptions(
    const std::vector<std::string>& arguments, const GetVariable& get_variable) {
  CLI::App app;
  app.set_help_flag("");
  app.prefix_command();  // the program and all that follows is not looked at
  bool help = false;
  bool version = false;
  app.add_flag("-h,--help", help);
  app.add_flag("--version", version);
  std::map<std::string, std::string> texts;
  std::map<std::string, bool> switches;
  for (const Flag& flag : kFlags) {
    const std::string other =
        "--" + absl::StrReplaceAll(std::string(flag.name).substr(2), {{"-", "_"}});
    std::string names = flag.name;
    if (other != flag.name) absl::StrAppend(&names, ",", other);
    if (flag.letter != 0) absl::StrAppend(&names, ",-", std::string(1, flag.letter));
    if (flag.value == nullptr) {
      app.add_flag(names, switches[flag.name]);
    } else {
      app.add_option(names, texts[flag.name])
          ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
    }
  }
  std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());  // as CLI11 wants it
  try {
    app.parse(reversed);
  } catch (const CLI::ParseError& error) {
    return Invalid(absl::StrCat(error.what(), "; see ddprun --help"));
  }
  if (help) return ShowText{HelpText()};
  if (version) return ShowText{absl::StrCat("ddprun ", kSoftwareVersion, "\n")};

  std::vector<std::string> program = app.remaining();
  if (!program.empty() && program.front() == "--") {
    program.erase(program.begin());
  } else if (!program.empty() && program.front().size() > 1 && program.front()[0] == '-') {
    return Invalid(absl::StrCat("unknown flag ", program.front(), "; see ddprun --help"));
  }
  Values values;
  for (const Flag& flag : kFlags) {
    const std::string variable = VariableName(flag.name);
    if (app.count(flag.name) > 0) {
      values[flag.name] = {
          flag.value == nullptr ? (switches[flag.name] ? "1" : "0") : texts[flag.name], flag.name};
    } else if (std::optional<std::string> text = get_variable(variable); text.has_value()) {
      values[flag.name] = {*text, variable};
    }
  }
  absl::StatusOr<Options> options = ReadValues(values, std::move(program));
  if (!options.ok()) return options.status();
  return *std::move(options);
}

}  // namespace ddprun
