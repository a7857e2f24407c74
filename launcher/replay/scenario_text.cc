// SPDX-License-Identifier: Apache-2.0
// A recorded run as a scenario of the simulation. What is taken over is what came from outside:
// nodes, the first failure of each round, machines that were lost, what people asked for. What
// follows from that the simulation finds out by itself.
#include <chrono>
#include <csignal>
#include <cstdint>
#include <map>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "launcher/replay/replay.h"
#include "rendezvous/base/overloaded.h"
#include "rendezvous/journal/journal_replay.h"
#include "rendezvous/membership/restart_policy.h"

namespace ddprun {
namespace {

using std::chrono::duration_cast;
using std::chrono::milliseconds;

std::string Ms(Duration time) {
  return absl::StrCat(duration_cast<milliseconds>(time).count(), "ms");
}

// More than leases, join timeouts and grace periods of usual runs take together.
constexpr const char* kWithin = "1h";

class Scenario {
 public:
  explicit Scenario(TimePoint begin) : begin_(begin) {}

  void OnStep(const RunState& after, const MembershipEvent& event, TimePoint now,
              const std::vector<MembershipEffect>& effects) {
    if (!rules_.has_value()) rules_ = after.rules;
    durable_ = after.durable;
    std::visit(
        Overloaded{
            [&](const NodeJoined& joined) { Joined(after, joined, now); },
            [&](const NodeReported& reported) { Reported(reported, now); },
            [&](const NodeGone& gone) {
              const auto link = nodes_.find(gone.link);
              if (link != nodes_.end()) gone_at_[link->second] = now;
            },
            [&](const NodeLost& lost) { Add(now, "crash", lost.node_id); },
            [&](const RunStopped& stopped) { At(now, stopped.now ? "ctl-stop now" : "ctl-stop"); },
            [&](const NodeDrained& drained) {
              Add(now, "drain", drained.node_id, drained.at_next_round ? " at-next-round" : "");
            },
            [](const Tick&) {}},
        event);
    for (const MembershipEffect& effect : effects) {
      if (const auto* note = std::get_if<RunNotice>(&effect)) Noted(*note, event, now);
    }
    if (after.verdict.has_value()) exit_code_ = after.verdict->exit_code;
    for (const auto& [link, node] : after.links) nodes_[link] = node;
    end_ = now;
  }

  std::string Text() const {
    std::string run = "run";
    if (rules_->hosts_service || hosted_) run += " hosted";
    if (durable_ && !hosted_) run += " journal";
    const Duration work = success_ ? end_ - round_began_ : 10 * (end_ - begin_);
    absl::StrAppend(&run, " nodes=", rules_->nodes_min, ":", rules_->nodes_max,
                    " restarts=", rules_->restarts_max, " lease=", Ms(rules_->lease),
                    " join-timeout=", Ms(rules_->join_timeout),
                    " last-call=", Ms(rules_->last_call),
                    " term-timeout=", Ms(rules_->stop_timeout), " work=", Ms(work),
                    " collective=100ms rank-order=", RankOrderName(rules_->rank_order));
    std::vector<std::string> flags;
    const std::vector<PolicyFlag> usual = FlagsOf(RestartPolicy{});
    const std::vector<PolicyFlag> given = FlagsOf(rules_->restart_policy);
    for (std::size_t i = 0; i < given.size(); ++i) {
      if (given[i].value != usual[i].value && !given[i].value.empty())
        flags.push_back(absl::StrCat(given[i].flag, " ", given[i].value));
    }
    if (!flags.empty()) absl::StrAppend(&run, " flags=\"", absl::StrJoin(flags, " "), "\"");
    std::string text = absl::StrCat("# Run ", rules_->run_id, ", from its record.\n", run, "\n",
                                    hosted_ ? "" : "at 0ms start service\n");
    for (const auto& line : lines_) absl::StrAppend(&text, line.second, "\n");
    if (exit_code_ && !last_node_.empty())
      absl::StrAppend(&text, "await ", last_node_, " phase=ended exit=", *exit_code_,
                      " within=", kWithin, "\n");
    return text + "settle\n";
  }

 private:
  void Joined(const RunState& after, const NodeJoined& joined, TimePoint now) {
    const Join& join = joined.join;
    if (!after.members.contains(join.node_id) || names_.contains(join.node_id)) return;
    // In the simulation the node that hosts the service is n0.
    std::string name = "n0";
    if (!join.hosts_service) name = absl::StrCat("n", 1 + others_++);
    hosted_ = hosted_ || join.hosts_service;
    names_[join.node_id] = name;
    if (last_node_.empty() || join.hosts_service) last_node_ = name;
    Add(now, "start", join.node_id,
        absl::StrCat(" workers=", join.local_world_size,
                     join.node_rank ? absl::StrCat(" rank=", *join.node_rank) : "",
                     join.topology.empty() ? "" : " topology=" + join.topology));
  }

  void Reported(const NodeReported& reported, TimePoint now) {
    const auto link = nodes_.find(reported.link);
    if (link == nodes_.end()) return;
    if (const auto* leave = std::get_if<Leave>(&reported.report)) {
      if (leave->reason.kind != FailureKind::kNodeInterrupted) return;
      Add(now, leave->reason.signal == SIGKILL ? "crash" : "interrupt", link->second);
    } else if (const auto* notice = std::get_if<PreemptionReport>(&reported.report)) {
      if (notice->withdrawn) return Add(now, "withdraw", link->second);
      if (notice->saved != 0) return Add(now, "saved", link->second);
      Add(now, "notice", link->second, absl::StrCat(" grace=", Ms(notice->remaining)));
    }
  }

  void Noted(const RunNotice& note, const MembershipEvent& event, TimePoint now) {
    if (note.kind == NoticeKind::kRoundStarted) {
      round_began_ = now;
      // What follows befell this round, whenever the simulation begins it.
      Await(now, absl::StrCat("service phase=sealed round=", ToNumber(note.round)));
    }
    if (note.kind == NoticeKind::kRunFinished) success_ = !note.why.has_value();
    // With its warden: nobody has reported it.
    if (note.kind == NoticeKind::kNodeLost && !std::holds_alternative<NodeLost>(event)) {
      const auto gone = gone_at_.find(note.node_id);
      Add(gone == gone_at_.end() ? now : gone->second, "crash-machine", note.node_id);
    }
    if (note.kind != NoticeKind::kRoundBroken || !note.why.has_value()) return;
    const Failure& why = *note.why;
    const auto* reported = std::get_if<NodeReported>(&event);
    if (reported == nullptr || !std::holds_alternative<WorkerFailed>(reported->report)) return;
    const NodeId& node = nodes_[reported->link];
    Await(now, absl::StrCat(names_[node], " phase=running round=", ToNumber(note.round)));
    Add(now, "fail", node,
        why.signal > 0 ? absl::StrCat(" signal=", why.signal)
                       : absl::StrCat(" code=", ToExitCode(why)));
  }

  void Await(TimePoint now, const std::string& what) {
    lines_.emplace(now - begin_, absl::StrCat("await ", what, " within=", kWithin));
  }
  void Add(TimePoint now, const char* verb, const NodeId& node, const std::string& rest = "") {
    const auto name = names_.find(node);
    if (name != names_.end()) At(now, absl::StrCat(verb, " ", name->second, rest));
  }
  void At(TimePoint now, const std::string& what) {
    lines_.emplace(now - begin_, absl::StrCat("at ", Ms(now - begin_), " ", what));
  }

  const TimePoint begin_;
  std::optional<Join> rules_;
  bool durable_ = false;
  bool hosted_ = false;
  bool success_ = false;
  std::optional<int> exit_code_;
  int others_ = 0;
  std::map<NodeId, std::string> names_;
  std::map<LinkId, NodeId> nodes_;  // also those that are gone
  std::map<NodeId, TimePoint> gone_at_;
  std::string last_node_;  // that hears the verdict
  TimePoint round_began_{};
  TimePoint end_{};
  std::multimap<Duration, std::string> lines_;
};

}  // namespace

absl::StatusOr<std::string> ScenarioText(std::vector<JournalRecord> records) {
  if (records.empty()) return absl::DataLossError("its steps are not recorded");
  const auto* first = records.size() < 2 ? nullptr : std::get_if<RunSnapshot>(&records[1].what);
  if (first != nullptr && !first->state.members.empty()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "its record begins in round ", ToNumber(first->state.round),
        ", since the oldest part of a long record goes first; a scenario needs the whole run"));
  }
  Scenario scenario(records.front().now);
  bool any = false;
  JournalReplayer replayer([&](const RunState& after, const MembershipEvent& event, TimePoint now,
                               const std::vector<MembershipEffect>& effects) {
    any = any || after.rules.has_value();
    scenario.OnStep(after, event, now, effects);
  });
  for (JournalRecord& record : records) {
    if (absl::Status applied = replayer.Apply(std::move(record)); !applied.ok()) return applied;
  }
  if (!any) return absl::FailedPreconditionError("no node has joined it");
  return scenario.Text();
}

}  // namespace ddprun
