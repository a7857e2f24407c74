// SPDX-License-Identifier: Apache-2.0
#include "launcher/ctl/ctl_commands.h"

#include <limits>
#include <utility>

#include "absl/strings/str_split.h"
#include "launcher/base/int_ranges.h"
#include "launcher/base/limits.h"
#include "launcher/chaos/fault_table.h"
#include "rendezvous/base/limits.h"

namespace ddprun {
namespace {

using Command = CtlOptions::Command;
using Given = GivenToCtl;

constexpr std::int64_t kHour = 3600;
constexpr std::int64_t kDay = 24 * kHour;

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

void ReadCompare(Reader& reader, const Flag&, const Value& value, Given& given) {
  given.compare = absl::StrSplit(value.text, ',', absl::SkipWhitespace());
  if (given.compare.empty() || given.compare.size() > kWebOthersMax)
    reader.Fail(value,
                absl::StrCat("up to ", kWebOthersMax, " runs of ddpctl runs, as in job7,job8"));
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
    {"--compare", "RUN,...", "Draw the curves of these detached runs beside the run's own.",
     ReadCompare},
    {"--save", "FILE", "Write the page to FILE, which needs no network, and end.",
     Sets<&Given::save>},
};

constexpr CtlFlag kCapsuleFlags[] = {
    {"--output", "FILE", "Write to FILE; tar compresses by its suffix (NAME.tar.gz).",
     Sets<&Given::save>, Letter('o')},
};

constexpr CtlFlag kReplayFlags[] = {
    {"--until", "SECONDS", "Stop there, and show the run's status as it was (its end).",
     Sets<&Given::until>, UpTo(365 * kDay)},
    {"--rank", "N", "Only what concerns this rank's node, and the run.", Sets<&Given::rank>,
     UpTo(std::numeric_limits<int>::max())},
    {"--scenario", "FILE", "Write the run as a scenario of the simulation, and end.",
     Sets<&Given::save>},
    {"--json", nullptr, "Print JSON.", Sets<&Given::json>},
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

}  // namespace

absl::Span<const CtlFlag> ServiceFlags() { return kServiceFlags; }

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
       "lines, across restarts and\nuntil the run ends; a service that is gone is asked again for "
       "a minute. Each line has the prefix that it has on the\nconsole of its node. A slow reader "
       "never blocks a worker: lines are dropped, and their number is printed. RUN is the\nsame as "
       "--rdzv-id; that of a detached run may have ended.",
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
      {"capsule", Command::kCapsule, "ddpctl", " [RUN]",
       "pack what is known about a run into a file for others",
       "Packs what this machine knows about a detached run into one file, to be sent with a "
       "report: "
       "its record, steps, events,\nsamples, verdict, the end of its output, and what ddprun "
       "doctor "
       "says of this machine. The run's secret is not in it, nor\narguments that look like one; "
       "what the workers print is.",
       kCapsuleFlags, false},
      {"replay", Command::kReplay, "ddpctl", " [RUN|FILE]",
       "step through a detached run again, from its record",
       "Gives the recorded steps of a detached run, or of a capsule, to the rules of the "
       "rendezvous "
       "service again, and prints\nwhat happened when. The verdict must be the recorded one: else "
       "it "
       "says where they part, and exits with 1.\n\n  ddpctl replay run.tar.gz --until 12.5",
       kReplayFlags, false},
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

}  // namespace ddprun
