// SPDX-License-Identifier: Apache-2.0
#include "launcher/ctl/ctl_options.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "launcher/base/int_ranges.h"
#include "launcher/base/limits.h"
#include "proto/version.h"
#include "rendezvous/base/limits.h"

namespace ddprun {
namespace {

using Command = CtlOptions::Command;

constexpr double kStopWaitSecondsMax = 24.0 * 3600;

struct CommandInfo {
  const char* name;
  Command command;
  const char* positional;  // for --help; empty: none
  const char* help;
  std::vector<Flag> flags;
};

const std::vector<CommandInfo>& Commands() {
  static const std::vector<CommandInfo>& commands = *new std::vector<CommandInfo>{
      {"stop",
       Command::kStop,
       "",
       "Ends a run on all its nodes: the workers get SIGTERM and their grace, and every ddprun "
       "ends with exit code\n143 (137 with --now) and the words \"stopped by ddpctl from HOST "
       "(ADDRESS)\".",
       {{"--now", 0, nullptr, "Send SIGKILL at once, also after a stop that takes too long."},
        {"--wait", 0, nullptr, "Wait until the run has ended; exit with its code."},
        {"--wait-timeout", 0, "SECONDS", "Time to wait (120); then exit with 1."}}},
      {"drain",
       Command::kDrain,
       " NODE",
       "Lets one node leave the run, which is no failure and uses no restart: a node that stands "
       "by "
       "takes its place,\nor with --nnodes MIN:MAX the run goes on without it. NODE is its node "
       "rank, host or node id. Says what happens,\nand refuses where the run could not go on. The "
       "node's ddprun ends with exit code 0.",
       {{"--force", 0, nullptr, "Drain the node even if the run must then wait for another one."},
        {"--at-next-round", 0, nullptr, "Let the node stay until its round ends by itself."},
        {"--dry-run", 0, nullptr, "Only print what would happen."}}},
      {"logs",
       Command::kLogs,
       " [RUN]",
       "Shows what the workers of all nodes say: the last lines of each, and with -f those that "
       "come, over restarts and\nuntil the run ends. Each has the prefix that it has on its node's "
       "console. Nothing waits for who reads slowly:\nlines are left out then, and their number is "
       "said. RUN is the same as --rdzv-id.",
       {{"--follow", 'f', nullptr, "Also print new lines as they come."},
        {"--lines", 'n', "N",
         "Number of earlier lines of each worker (10); agents keep 32 to 64 KB."},
        {"--rank", 0, "LIST", "Only these workers: 0-3,8."},
        {"--node", 0, "LIST", "Only these nodes: node ranks, hosts or node ids."},
        {"--stdout", 0, nullptr, "Only stdout."},
        {"--stderr", 0, nullptr, "Only stderr."}}},
  };
  return commands;
}

std::string Overview() {
  return "Usage: ddpctl COMMAND [FLAGS]\n\n"
         "Looks after runs of ddprun through their rendezvous service.\n\n"
         "  status            nodes, ranks, how far everybody is, and why the last round ended\n"
         "  stop              end a run on all its nodes\n"
         "  drain NODE        let one node leave\n"
         "  logs [RUN]        what the workers say; -f: as they say it\n"
         "  doctor            check nodes and network before a run: ddprun doctor\n\n"
         "ddpctl COMMAND --help tells the rest. Exit codes: 0; 1 where it could not be done; 2 for "
         "a wrong command line.\n";
}

std::vector<Flag> FlagsOf(const CommandInfo& info) {
  std::vector<Flag> flags = info.flags;
  flags.insert(flags.end(), kServiceFlags.begin(), kServiceFlags.end());
  flags.insert(flags.end(), kSecurityFlags.begin(), kSecurityFlags.end());
  return flags;
}

std::string HelpText(const CommandInfo& info) {
  return absl::StrCat("Usage: ddpctl ", info.name, info.positional, " [FLAGS]\n\n", info.help,
                      "\n\n", FlagsHelp(FlagsOf(info)),
                      "  -h, --help                        print this\n");
}

// Flags may stand before and after what is no flag.
absl::StatusOr<ParsedFlags> ParseMixed(const std::vector<Flag>& flags,
                                       std::vector<std::string> arguments,
                                       const GetVariable& get_variable) {
  ParsedFlags all;
  for (bool first = true; first || !arguments.empty(); first = false) {
    absl::StatusOr<ParsedFlags> part = ParseFlags(flags, arguments);
    if (!part.ok()) return part.status();
    for (auto& [name, value] : part->values) all.values[name] = std::move(value);
    all.help = all.help || part->help;
    all.version = all.version || part->version;
    arguments = std::move(part->rest);
    if (arguments.empty()) break;
    all.rest.push_back(arguments.front());
    arguments.erase(arguments.begin());
  }
  AddVariables(flags, get_variable, all.values);
  return all;
}

// Of rising numbers.
std::vector<RankRange> ToRanges(const std::vector<int>& numbers) {
  std::vector<RankRange> ranges;
  for (const int number : numbers) {
    if (!ranges.empty() && number == ranges.back().last + 1) {
      ranges.back().last = number;
    } else {
      ranges.push_back({number, number});
    }
  }
  return ranges;
}

void ReadLogs(Reader& reader, CtlOptions& options) {
  LogWatch& watch = options.watch;
  watch.follow = reader.Switch("--follow");
  watch.lines = reader.Integer("--lines", 0, kWatchLinesMax).value_or(kLogsLinesDefault);
  if (const Value* value = reader.Find("--rank"); value != nullptr) {
    const auto ranks = ParseRanges(value->text);
    if (!ranks.has_value() || ranks->empty()) {
      reader.Fail(*value, "ranks, as in 0-3,8");
    } else {
      watch.ranks = ToRanges(*ranks);
      if (watch.ranks.size() > kWatchNamesMax) reader.Fail(*value, "fewer ranges");
    }
  }
  if (const Value* value = reader.Find("--node"); value != nullptr) {
    options.nodes = absl::StrSplit(value->text, ',', absl::SkipWhitespace());
    if (options.nodes.empty() || options.nodes.size() > kWatchNamesMax) {
      reader.Fail(*value, "node ranks, hosts or node ids, as in 0,node-b");
    }
  }
  const bool out = reader.Switch("--stdout");
  const bool err = reader.Switch("--stderr");
  watch.without_stdout = err && !out;
  watch.without_stderr = out && !err;
}

absl::StatusOr<CtlOptions> ReadOptions(const CommandInfo& info, const ParsedFlags& flags,
                                       const std::string& see_help) {
  Reader reader(flags.values);
  CtlOptions options;
  options.command = info.command;
  options.run_id = reader.Text("--rdzv-id", "a name", "");
  options.timeout = ReadServiceTimeout(reader);
  options.now = reader.Switch("--now");
  options.wait = reader.Switch("--wait");
  options.wait_timeout =
      reader.Seconds("--wait-timeout", kStopWaitSecondsMax).value_or(kStopWaitDefault);
  if (info.command == Command::kLogs) ReadLogs(reader, options);
  options.force = reader.Switch("--force");
  options.at_next_round = reader.Switch("--at-next-round");
  options.dry_run = reader.Switch("--dry-run");
  options.security = reader.Security();
  const std::size_t wanted = info.positional[0] != '\0' ? 1 : 0;
  if (info.command == Command::kLogs && flags.rest.empty()) {
    // The only run, or --rdzv-id's.
  } else if (flags.rest.size() > wanted) {
    reader.FailWith(
        absl::StrCat("ddpctl ", info.name, " does not know '", flags.rest[wanted], "'", see_help));
  } else if (flags.rest.size() < wanted) {
    reader.FailWith(absl::StrCat("ddpctl ", info.name, " needs", info.positional,
                                 ": its node rank, host or node id", see_help));
  } else if (info.command == Command::kLogs) {
    if (!options.run_id.empty() && options.run_id != flags.rest.front()) {
      reader.FailWith(absl::StrCat("ddpctl logs is asked for run '", flags.rest.front(),
                                   "' and --rdzv-id for '", options.run_id, "'; name one"));
    }
    options.run_id = flags.rest.front();
  } else if (wanted > 0) {
    options.node = flags.rest.front();
  }
  if (!reader.status().ok()) return reader.status();
  absl::StatusOr<ServiceAddress> service = ReadServiceAddress(reader, see_help);
  if (!service.ok()) return service.status();
  options.service = *std::move(service);
  return options;
}

}  // namespace

absl::StatusOr<std::variant<CtlOptions, ShowText>> ParseCtlOptions(
    const std::vector<std::string>& arguments, const GetVariable& get_variable) {
  const std::string word = arguments.empty() ? "--help" : arguments.front();
  if (word == "--help" || word == "-h") return ShowText{Overview()};
  if (word == "--version") return ShowText{absl::StrCat("ddpctl ", kSoftwareVersion, "\n")};
  for (const CommandInfo& info : Commands()) {
    if (word != info.name) continue;
    const std::string see_help = absl::StrCat("; see ddpctl ", info.name, " --help");
    const absl::StatusOr<ParsedFlags> flags =
        ParseMixed(FlagsOf(info), {arguments.begin() + 1, arguments.end()}, get_variable);
    if (!flags.ok()) {
      return absl::InvalidArgumentError(absl::StrCat(flags.status().message(), see_help));
    }
    if (flags->help) return ShowText{HelpText(info)};
    absl::StatusOr<CtlOptions> options = ReadOptions(info, *flags, see_help);
    if (!options.ok()) return options.status();
    return *std::move(options);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("ddpctl does not know '", word, "'; see ddpctl --help"));
}

}  // namespace ddprun
