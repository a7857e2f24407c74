// SPDX-License-Identifier: Apache-2.0
#include "launcher/ctl/ctl_options.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "launcher/base/int_ranges.h"
#include "launcher/base/limits.h"
#include "launcher/chaos/fault_table.h"
#include "proto/text.h"
#include "proto/version.h"
#include "rendezvous/base/limits.h"

namespace ddprun {
namespace {

using Command = CtlOptions::Command;

constexpr std::int64_t kHour = 3600;
constexpr std::int64_t kDay = 24 * kHour;

// What flags set: the options, and what these are made from.
struct Given : CtlOptions {
  std::optional<Endpoint> endpoint;
  std::string master_addr;
  int master_port = kPortDefault;
  std::string socket;
  bool only_stdout = false;
  bool only_stderr = false;
};

using CtlFlag = FlagOf<Given>;

// `numbers` ascend.
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

void ReadRanks(Reader& reader, const Flag&, const Value& value, Given& given) {
  const auto ranks = ParseRanges(value.text);
  if (!ranks.has_value() || ranks->empty()) return reader.Fail(value, "ranks, as in 0-3,8");
  given.watch.ranks = ToRanges(*ranks);
  if (given.watch.ranks.size() > kWatchNamesMax) reader.Fail(value, "fewer ranges");
}

void ReadNodes(Reader& reader, const Flag&, const Value& value, Given& given) {
  given.nodes = absl::StrSplit(value.text, ',', absl::SkipWhitespace());
  if (given.nodes.empty() || given.nodes.size() > kWatchNamesMax)
    reader.Fail(value, "node ranks, hosts or node ids, as in 0,node-b");
}

void ReadKinds(Reader& reader, const Flag&, const Value& value, Given& given) {
  if (value.text.empty()) return reader.Fail(value, "a list of kinds");
  absl::StatusOr<std::vector<FaultKind>> kinds = ParseFaultKinds(value.text);
  reader.Check(kinds.status());
  if (kinds.ok()) given.chaos.kinds = *std::move(kinds);
}

constexpr CtlFlag kServiceFlags[] = {
    {"--rdzv-endpoint", "HOST[:PORT]",
     "Address of the rendezvous service (port 29400); several with commas.",
     Sets<&Given::endpoint>},
    {"--master-addr", "ADDRESS", "Address of node 0, for runs that were started with it.",
     Sets<&Given::master_addr>},
    {"--master-port", "PORT", "Port of node 0 ({}).", Sets<&Given::master_port>, Between(1, 65535)},
    {"--socket", "PATH", "Socket of a ddprun-rendezvous that runs with --host unix:PATH.",
     Sets<&Given::socket>},
    {"--rdzv-id", "ID", "Name of the run (all runs of the service).", Sets<&Given::run_id>},
    {"--timeout", "SECONDS", "Time to wait for an answer ({}).", Sets<&Given::timeout>,
     UpTo(kHour)},
};

constexpr CtlFlag kStatusFlags[] = {
    {"--json", nullptr, "Print JSON.", Sets<&Given::json>},
    {"--watch", nullptr, "Show it on a screen that is refreshed, as ddpctl top.",
     Sets<&Given::refresh>},
    {"--interval", "SECONDS", "Refresh interval ({}).", Sets<&Given::interval>, UpTo(kHour)},
};

constexpr CtlFlag kTopFlags[] = {
    {"--interval", "SECONDS", "Refresh interval ({}).", Sets<&Given::interval>, UpTo(kHour)},
};

constexpr CtlFlag kRunsFlags[] = {
    {"--json", nullptr, "Print JSON.", Sets<&Given::json>},
};

constexpr CtlFlag kEventsFlags[] = {
    {"--follow", nullptr, "Also print new events as they come, until the run ends.",
     Sets<&Given::watch, &LogWatch::follow>, Letter('f')},
    {"--lines", "N", "Only the last N (all that are kept).", Sets<&Given::last_events>,
     FlagTraits{.letter = 'n', .min = 1, .max = kEventHistoryMax}},
    {"--json", nullptr, "Print each event as JSON.", Sets<&Given::json>},
};

constexpr CtlFlag kWhyFlags[] = {
    {"--json", nullptr, "Print JSON.", Sets<&Given::json>},
    {"--verdict-file", "FILE", "Explain the verdict that ddprun --verdict-file has written.",
     Sets<&Given::verdict_file>},
};

constexpr CtlFlag kWebFlags[] = {
    {"--port", "PORT", "Serve the page at this port of 127.0.0.1 (one that is free).",
     Sets<&Given::port>, UpTo(65535)},
    {"--web-control", nullptr, "The page may stop the run and drain its nodes; else it only reads.",
     Sets<&Given::web_control>},
    {"--save", "FILE", "Write the page to FILE, which needs no network, and end.",
     Sets<&Given::save>},
};

constexpr CtlFlag kAttachFlags[] = {
    {"--all", nullptr, "Show all that is kept, not only what this user has not been shown yet.",
     Sets<&Given::whole>},
    {"--host", "[USER@]HOST", "The machine of the run, which is reached by ssh (this one).",
     Sets<&Given::host>},
    {"--rsh", "COMMAND", "Command instead of ssh.", Sets<&Given::rsh>},
    {"--serve", nullptr, "Be the other end of another attach, on stdin and stdout.",
     Sets<&Given::serves>},
};

constexpr CtlFlag kStopFlags[] = {
    {"--now", nullptr, "Send SIGKILL at once, also after a stop that takes too long.",
     Sets<&Given::now>},
    {"--wait", nullptr, "Wait until the run has ended; exit with its code.", Sets<&Given::wait>},
    {"--wait-timeout", "SECONDS", "Time to wait ({}); then exit with 1.",
     Sets<&Given::wait_timeout>, UpTo(kDay)},
};

constexpr CtlFlag kDrainFlags[] = {
    {"--force", nullptr, "Drain the node even if the run must then wait for another one.",
     Sets<&Given::force>},
    {"--at-next-round", nullptr, "Let the node stay until its round ends by itself.",
     Sets<&Given::at_next_round>},
    {"--dry-run", nullptr, "Only print what would happen.", Sets<&Given::dry_run>},
};

constexpr CtlFlag kPromoteFlags[] = {
    {"--force", nullptr, "Also where the copy may lack what was decided last.",
     Sets<&Given::force>},
};

constexpr CtlFlag kLogsFlags[] = {
    {"--follow", nullptr, "Also print new lines as they come.",
     Sets<&Given::watch, &LogWatch::follow>, Letter('f')},
    {"--lines", "N", "Number of earlier lines of each worker ({}); agents keep 32 to 64 KB.",
     Sets<&Given::watch, &LogWatch::lines>, FlagTraits{.letter = 'n', .max = kWatchLinesMax}},
    {"--rank", "LIST", "Only these workers: 0-3,8.", ReadRanks},
    {"--node", "LIST", "Only these nodes: node ranks, hosts or node ids.", ReadNodes},
    {"--stdout", nullptr, "Only stdout.", Sets<&Given::only_stdout>},
    {"--stderr", nullptr, "Only stderr.", Sets<&Given::only_stderr>},
};

template <auto member>
constexpr auto SetsChaos = Sets<&Given::chaos, member>;

constexpr CtlFlag kChaosFlags[] = {
    {"--every", "SECONDS", "Time between two faults ({}).", SetsChaos<&ChaosOptions::every>,
     UpTo(30 * kDay)},
    {"--kinds", "LIST", "Kinds of faults: names, default or all (default).", ReadKinds},
    {"--count", "N", "End after N faults.", SetsChaos<&ChaosOptions::count>,
     Between(1, kChaosFaultsMax)},
    {"--for", "SECONDS", "End after this time.", SetsChaos<&ChaosOptions::time>, UpTo(30 * kDay)},
    {"--lasting", "SECONDS", "Duration of faults that last (that of each kind).",
     SetsChaos<&ChaosOptions::duration>, UpTo(kFaultDurationMax.count())},
    {"--seed", "N", "Repeat the choices of an earlier report.", SetsChaos<&ChaosOptions::seed>,
     UpTo(std::numeric_limits<int>::max())},
    {"--report", "FILE", "Write the report as JSON.", SetsChaos<&ChaosOptions::report>},
    {"--yes", nullptr, "Do not ask for the name of the run.", SetsChaos<&ChaosOptions::yes>},
};

struct CommandInfo {
  const char* name;
  Command command;
  const char* program;     // that users call it by
  const char* positional;  // for --help; empty: none
  const char* summary;     // for the overview
  const char* help;
  absl::Span<const CtlFlag> flags;
  bool asks_service = true;
};

const std::vector<CommandInfo>& Commands() {
  static const std::vector<CommandInfo>& commands = *new std::vector<CommandInfo>{
      {"status", Command::kStatus, "ddprun", "",
       "show nodes, ranks, progress, and why the last round ended",
       "Shows the runs of a rendezvous service: their nodes and ranks, their progress, what they "
       "wait for, and why the\nlast round ended. Exit codes: 0; 1 if the service is not reached or "
       "has no such run; 2 for an invalid command\nline.\n\n"
       "  ddprun status --rdzv-endpoint head:29400 --rdzv-id job7",
       kStatusFlags},
      {"top", Command::kTop, "ddpctl", " [RUN]",
       "show nodes and ranks on a screen that is refreshed",
       "Shows a run on a screen that is refreshed: its nodes and ranks, what each does, and what "
       "is "
       "wrong; how loss and rate\ngo, the goodput and the events. Keys: j and k or the arrows "
       "move, / "
       "filters, o orders, s shows the stacks of the\nrank, l its output, d drains its node after "
       "a "
       "question, Tab shows the next run, q ends. Where stdout is no\nterminal: a line when "
       "something "
       "changes. RUN is the same as --rdzv-id.",
       kTopFlags},
      {"runs", Command::kRuns, "ddpctl", "", "list this user's detached runs, and how each ended",
       "Lists the runs that this user has started with ddprun --detach on this machine, the newest "
       "first: those that go on,\nand the last that have ended, with their exit code and verdict.",
       kRunsFlags, false},
      {"attach", Command::kAttach, "ddpctl", " [RUN]",
       "show the output of a detached run, and go on with it",
       "Shows what a run of ddprun --detach has printed since it was shown last, and goes on until "
       "it "
       "ends; then exits with\nits exit code. Ctrl-C leaves, and the run goes on (ddpctl stop ends "
       "it). RUN is its name or its --rdzv-id; the newest\nrun if none is named. A connection that "
       "breaks "
       "(a laptop that sleeps or has another address) is made anew, and no byte\nis lost or shown "
       "twice.",
       kAttachFlags, false},
      {"stop", Command::kStop, "ddpctl", " [RUN]", "end a run on all its nodes",
       "Ends a run on all its nodes: the workers get SIGTERM and their grace period, and every "
       "ddprun ends with exit\ncode 143 (137 with --now) and the words \"stopped by ddpctl from "
       "HOST (ADDRESS)\".",
       kStopFlags},
      {"drain", Command::kDrain, "ddpctl", " NODE", "let one node leave",
       "Lets one node leave the run, which counts neither as a failure nor as a restart: a spare "
       "node takes its place,\nor with --nnodes MIN:MAX the run continues without it. NODE is its "
       "node rank, host or node id. Prints what\nhappens, and refuses if the run could not "
       "continue. The node's ddprun ends with exit code 0.",
       kDrainFlags},
      {"promote", Command::kPromote, "ddpctl", " HOST[:PORT]",
       "make a standby node the rendezvous service",
       "Makes a service that stands by with a copy of the run's journal (ddprun --standby-nodes) "
       "the "
       "one that leads. Only\nafter the machine of the one before is lost for good: nobody else "
       "can "
       "know that. HOST:PORT is one of those that\n--rdzv-endpoint names on the nodes. Refuses "
       "while it hears the other one, and if its copy is not complete.",
       kPromoteFlags},
      {"logs", Command::kLogs, "ddpctl", " [RUN]",
       "print the output of the workers; -f: as it comes",
       "Prints the output of the workers of all nodes: the last lines of each, and with -f new "
       "lines, across restarts and\nuntil the run ends. Each line has the prefix that it has on "
       "the console of its node. A slow reader never blocks\na worker: lines are dropped, and "
       "their number is printed. RUN is the same as --rdzv-id.",
       kLogsFlags},
      {"events", Command::kEvents, "ddpctl", " [RUN]", "list what has happened in a run",
       "Lists the events of a run, the oldest first: nodes that came and went, rounds and how each "
       "ended, slow ranks, faults.\nOf a run that goes on they come from its service, which keeps "
       "the last 512; of a detached one that has ended from its\nfolder.",
       kEventsFlags},
      {"why", Command::kWhy, "ddpctl", " [RUN]", "say in a paragraph what happened, and what to do",
       "Says what happened to a run, from what is recorded: how it ended or what it waits for, the "
       "first cause, what preceded\nit, and what to do. Of one that goes on, of a detached one "
       "that "
       "has ended, or of a verdict in a file.",
       kWhyFlags},
      {"web", Command::kWeb, "ddpctl", " [RUN]", "show a run as a page in a browser",
       "Serves a run that goes on as a page: ranks, curves, rounds and events on a time line, "
       "lines "
       "as they come, and what\nddpctl why says. It prints the address, whose token lets in, and "
       "ends with Ctrl-C. With --save it writes one HTML file,\nalso of a detached run that has "
       "ended.\n\n  ddpctl web --save run.html",
       kWebFlags},
      {"stacks",
       Command::kStacks,
       "ddpctl",
       " [RANK]",
       "print what workers do now: their Python and native stacks",
       "Prints where the workers wait for each other, and the stacks of each, or of RANK alone: "
       "the Python frames\nfirst. The run goes on; a thread is stopped while its native stack is "
       "read. Where the nodes keep log files,\nrank_R/stacks.txt has all lines.",
       {}},
      {"chaos", Command::kChaos, "ddpctl", " [RUN]",
       "inject faults into a run, on purpose, and report what they cost",
       "Injects one fault after another into your own run, at random, and prints for each how long "
       "it "
       "took until the run\nhad made a new step. Ends with the run, after --count faults or --for "
       "SECONDS, or with Ctrl-C; undoes what lasts and\nprints a report. Only for a run with a "
       "secret. CHAOS.md explains it. Kinds of faults:\n\n",
       kChaosFlags},
  };
  return commands;
}

std::string Overview() {
  std::string text =
      "Usage: ddpctl COMMAND [FLAGS]\n\n"
      "Controls runs of ddprun through their rendezvous service.\n\n";
  for (const CommandInfo& info : Commands()) {
    absl::StrAppendFormat(&text, "  %-17s %s\n", absl::StrCat(info.name, info.positional),
                          info.summary);
  }
  return absl::StrCat(text,
                      "  doctor            check nodes and network before a run: ddprun doctor\n\n"
                      "See ddpctl COMMAND --help for the flags. Exit codes: 0; 1 if the command "
                      "failed; 2 for an invalid command line.\n");
}

std::vector<Flag> FlagsOf(const CommandInfo& info) {
  if (!info.asks_service) return FlagsIn(info.flags);
  return FlagsIn(info.flags, kServiceFlags, kSecurityFlags<Given>);
}

std::string HelpText(const CommandInfo& info) {
  return absl::StrCat("Usage: ", info.program, " ", info.name, info.positional, " [FLAGS]\n\n",
                      info.help, info.command == Command::kChaos ? FaultsHelp() : "\n", "\n",
                      FlagsHelp(FlagsOf(info)),
                      "  -h, --help                        Print this.\n");
}

// Flags may precede and follow the positional argument.
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

// Neither endpoint nor socket: no service was named.
absl::StatusOr<ServiceAddress> AddressOf(const Given& given) {
  const std::optional<Endpoint>& endpoint = given.endpoint;
  if (!given.socket.empty()) return ServiceAddress{.endpoint = {}, .socket = given.socket};
  if (endpoint.has_value() && endpoint->port == 0) {
    return absl::InvalidArgumentError("--rdzv-endpoint needs the port of the service, not 0");
  }
  if (endpoint.has_value()) return ServiceAddress{.endpoint = *endpoint, .socket = ""};
  if (!given.master_addr.empty())
    return ServiceAddress{.endpoint = {given.master_addr, given.master_port}, .socket = ""};
  return ServiceAddress();
}

// The argument that is no flag: drain's NODE, promote's HOST, stacks' RANK, the RUN of others.
void ReadPositional(const CommandInfo& info, const std::vector<std::string>& rest,
                    const std::string& see_help, Reader& reader, Given& given) {
  CtlOptions& options = given;
  const std::string name = absl::StrCat(info.program, " ", info.name);
  const std::size_t wanted = info.positional[0] != '\0' ? 1 : 0;
  const auto flag = std::find_if(rest.begin(), rest.end(),
                                 [](const std::string& word) { return word[0] == '-'; });
  if (rest.size() > wanted || flag != rest.end()) {
    const bool may_be_program = info.command == Command::kStatus;
    return reader.FailWith(absl::StrCat(
        name, " does not know '", flag != rest.end() ? *flag : rest[wanted], "'",
        may_be_program ? "; to run a program of the name status: ddprun -- status" : "", see_help));
  }
  if (info.command == Command::kDrain) {
    if (rest.empty())
      return reader.FailWith(
          absl::StrCat(name, " needs NODE: its node rank, host or node id", see_help));
    options.node = rest.front();
  }
  if (info.command == Command::kPromote) {
    if (rest.empty())
      return reader.FailWith(absl::StrCat(
          name, " needs HOST[:PORT]: one of those that --rdzv-endpoint names on the nodes",
          see_help));
    ReadInto(reader, kServiceFlags[0], {.text = rest.front(), .source = "HOST"}, given.endpoint);
  }
  if (info.command == Command::kStacks && !rest.empty()) {
    int rank = 0;
    if (!absl::SimpleAtoi(rest.front(), &rank) || rank < 0)
      return reader.FailWith(
          absl::StrCat(name, " takes the number of a rank, not '", rest.front(), "'", see_help));
    options.rank = rank;
  }
  if (std::string(info.positional) != " [RUN]" || rest.empty()) return;
  if (!options.run_id.empty() && options.run_id != rest.front()) {
    return reader.FailWith(absl::StrCat(name, " is asked for run '", rest.front(),
                                        "' and --rdzv-id for '", options.run_id, "'; name one"));
  }
  options.run_id = rest.front();
}

absl::StatusOr<CtlOptions> ReadOptions(const CommandInfo& info, const ParsedFlags& flags,
                                       const std::string& see_help) {
  Reader reader(flags.values);
  Given given;
  given.command = info.command;
  given.refresh = info.command == Command::kTop;
  given.chaos.kinds = *ParseFaultKinds("default");
  reader.Read(info.flags, given);
  reader.Read(kServiceFlags, given);
  reader.Read(kSecurityFlags<Given>, given);
  if (given.json && given.refresh) {
    reader.FailWith("--json and --watch contradict each other; leave one of them out");
  }
  given.watch.without_stdout = given.only_stderr && !given.only_stdout;
  given.watch.without_stderr = given.only_stdout && !given.only_stderr;
  reader.Check(CheckSecurityOptions(given.security));
  ReadPositional(info, flags.rest, see_help, reader, given);
  if (!reader.status().ok()) return reader.status();
  absl::StatusOr<ServiceAddress> service = AddressOf(given);
  if (!service.ok()) return service.status();
  given.service = *std::move(service);
  return CtlOptions(std::move(given));
}

}  // namespace

std::string TargetOf(const ServiceAddress& service) {
  if (!service.socket.empty()) return absl::StrCat("unix:", service.socket);
  return EndpointText(service.endpoint);
}

absl::StatusOr<ServiceAddress> ParseService(const std::string& text) {
  ServiceAddress service;
  absl::string_view path = text;
  if (absl::ConsumePrefix(&path, "unix:")) {
    service.socket = std::string(path);
    return service;
  }
  const std::vector<std::string> services = absl::StrSplit(text, ',');
  for (const std::string& one : services) {
    Endpoint endpoint;
    if (!ParseEndpoint(one, kEndpointPortDefault, endpoint))
      return absl::InvalidArgumentError(absl::StrCat("'", one, "' is no HOST:PORT"));
    if (&one == &services.front()) {
      service.endpoint = std::move(endpoint);
    } else {
      service.endpoint.others.push_back(std::move(endpoint));
    }
  }
  return service;
}

std::vector<Flag> StatusFlags() { return FlagsOf(Commands().front()); }

absl::StatusOr<std::variant<CtlOptions, ShowText>> ParseCtlOptions(
    const std::vector<std::string>& arguments, const GetVariable& get_variable) {
  const std::string word = arguments.empty() ? "--help" : arguments.front();
  if (word == "--help" || word == "-h") return ShowText{Overview()};
  if (word == "--version") return ShowText{absl::StrCat("ddpctl ", kSoftwareVersion, "\n")};
  for (const CommandInfo& info : Commands()) {
    if (word != info.name) continue;
    const std::string see_help = absl::StrCat("; see ", info.program, " ", info.name, " --help");
    const absl::StatusOr<ParsedFlags> flags =
        ParseMixed(FlagsOf(info), {arguments.begin() + 1, arguments.end()}, get_variable);
    if (!flags.ok()) {
      return absl::InvalidArgumentError(absl::StrCat(flags.status().message(), see_help));
    }
    if (flags->help) return ShowText{HelpText(info)};
    if (flags->version) return ShowText{absl::StrCat(info.program, " ", kSoftwareVersion, "\n")};
    absl::StatusOr<CtlOptions> options = ReadOptions(info, *flags, see_help);
    if (!options.ok()) return options.status();
    return *std::move(options);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("ddpctl does not know '", word, "'; see ddpctl --help"));
}

}  // namespace ddprun
