// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/membership.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "rendezvous/join_rules.h"
#include "rendezvous/limits.h"

namespace ddprun {
namespace {

std::chrono::milliseconds Until(TimePoint deadline, TimePoint now) {
  return std::max(std::chrono::milliseconds{0},
                  std::chrono::duration_cast<std::chrono::milliseconds>(deadline - now));
}

bool MayRestart(const RunState& state) {
  return state.may_restart && state.rules && state.restart_count < state.rules->restarts_max;
}

// One step: the state, the time, and the effects so far. The cases stand in the order of the
// diagram in README.md.
class Stepper {
 public:
  Stepper(RunState& state, TimePoint now) : state_(state), now_(now) {}

  void operator()(const NodeJoined& event);
  void operator()(const NodeReported& event);
  void operator()(const NodeGone& event);
  void operator()(const Tick&);

  std::vector<MembershipEffect> TakeEffects() { return std::move(effects_); }

 private:
  // Reports of a member.
  void On(LinkId link, Member& member, const Join&);
  void On(LinkId link, Member& member, const WorkerFailed& report);
  void On(LinkId link, Member& member, const NodeSucceeded& report);
  void On(LinkId link, Member& member, const NodeStopped& report);
  void On(LinkId link, Member& member, const Leave& report);

  // Transitions.
  void SealIfComplete();
  void Break(Failure cause);
  void AdvanceIfStopped();
  void FormNextRound();
  void CloseWithFailure(Failure cause);
  void Close(Verdict verdict);

  void RemoveMember(LinkId link, Failure reason);
  void GiveRanks();
  void TellWaiting();
  Verdict MakeVerdict() const;

  void Send(LinkId link, Directive directive) {
    effects_.emplace_back(std::in_place_type<SendDirective>,
                          SendDirective{link, std::move(directive)});
  }
  // In place, since GCC 12 takes the move of a variant made of the small type for a use of the
  // large one's members.
  void End(LinkId link) { effects_.emplace_back(std::in_place_type<EndStream>, EndStream{link}); }
  void Refuse(LinkId link, absl::Status status) {
    Send(link, Refused{std::move(status)});
    End(link);
  }

  RunState& state_;
  const TimePoint now_;
  std::vector<MembershipEffect> effects_;
};

// ---- Events

void Stepper::operator()(const NodeJoined& event) {
  if (absl::Status status = CheckJoin(state_, event.join); !status.ok()) {
    Refuse(event.link, std::move(status));
    return;
  }
  if (!state_.rules) {
    state_.rules = RulesOf(event.join);
    state_.deadline = now_ + state_.rules->join_timeout;
  }
  Member member;
  member.join = event.join;
  member.order = ++state_.joins;
  member.node_rank = event.join.node_rank;
  state_.members.insert_or_assign(event.link, std::move(member));
  if (state_.phase == RunPhase::kForming) SealIfComplete();
  TellWaiting();
}

void Stepper::operator()(const NodeReported& event) {
  const auto it = state_.members.find(event.link);
  if (it == state_.members.end()) return;
  std::visit([&](const auto& report) { On(it->first, it->second, report); }, event.report);
}

void Stepper::operator()(const NodeGone& event) {
  const auto it = state_.members.find(event.link);
  if (it == state_.members.end()) return;
  Failure reason;
  reason.kind = FailureKind::kNodeLost;
  reason.host = it->second.join.host;
  reason.node_rank = it->second.node_rank.value_or(-1);
  reason.message =
      "its connection to the rendezvous service ended without a word; check that machine and its "
      "network";
  RemoveMember(event.link, std::move(reason));
}

void Stepper::operator()(const Tick&) {
  switch (state_.phase) {
    case RunPhase::kForming:
      if (state_.rules && now_ >= state_.deadline) {
        CloseWithFailure(JoinTimeoutFailure(state_));
        return;
      }
      TellWaiting();
      return;
    case RunPhase::kBroken: {
      if (now_ < state_.deadline) return;
      for (auto it = state_.members.begin(); it != state_.members.end();) {
        if (it->second.phase != MemberPhase::kStopping) {
          ++it;
          continue;
        }
        Refuse(it->first,
               absl::DeadlineExceededError(absl::StrCat(
                   "node ", it->second.join.host, " did not stop its workers within ",
                   kStopTimeout.count(), " s after the failure and was taken out of run '",
                   state_.run_id, "'")));
        it = state_.members.erase(it);
      }
      AdvanceIfStopped();
      return;
    }
    case RunPhase::kSealed:
    case RunPhase::kClosed:
      return;
  }
}

// ---- Reports. One of another round than the current is late and means nothing any more.

void Stepper::On(LinkId link, Member& member, const Join&) {
  Failure reason;
  reason.kind = FailureKind::kNodeLost;
  reason.host = member.join.host;
  reason.node_rank = member.node_rank.value_or(-1);
  reason.message = "its agent joined twice on one connection";
  if (state_.phase == RunPhase::kClosed) return;
  Refuse(link,
         absl::InvalidArgumentError("Join is the first report of a stream, and only the first"));
  RemoveMember(link, std::move(reason));
}

void Stepper::On(LinkId, Member& member, const WorkerFailed& report) {
  if (state_.phase != RunPhase::kSealed || report.round != state_.round) return;
  Failure cause = report.failure;
  if (cause.host.empty()) cause.host = member.join.host;
  if (cause.node_rank < 0) cause.node_rank = *member.node_rank;
  Break(std::move(cause));
}

void Stepper::On(LinkId, Member& member, const NodeSucceeded& report) {
  if (state_.phase != RunPhase::kSealed || report.round != state_.round) return;
  member.phase = MemberPhase::kSucceeded;
  const bool all = std::all_of(state_.members.begin(), state_.members.end(), [](const auto& entry) {
    return entry.second.phase == MemberPhase::kSucceeded;
  });
  if (!all) return;
  Verdict verdict = MakeVerdict();
  verdict.success = true;
  Close(std::move(verdict));
}

void Stepper::On(LinkId, Member& member, const NodeStopped& report) {
  if (state_.phase != RunPhase::kBroken || report.round != state_.round) return;
  if (member.phase != MemberPhase::kStopping) return;
  member.phase = MemberPhase::kStopped;
  if (report.worker_port > 0) member.join.worker_port = report.worker_port;
  AdvanceIfStopped();
}

void Stepper::On(LinkId link, Member& member, const Leave& report) {
  if (state_.phase == RunPhase::kClosed) return;
  Failure reason = report.reason;
  if (reason.host.empty()) reason.host = member.join.host;
  if (reason.node_rank < 0) reason.node_rank = member.node_rank.value_or(-1);
  if (report.close_run) state_.may_restart = false;
  End(link);
  RemoveMember(link, std::move(reason));
}

// ---- Transitions

void Stepper::SealIfComplete() {
  if (static_cast<int>(state_.members.size()) < state_.rules->nodes_max) return;
  GiveRanks();
  std::vector<std::pair<LinkId, Member*>> by_rank(state_.members.size());
  for (auto& [link, member] : state_.members) {
    by_rank[static_cast<std::size_t>(*member.node_rank)] = {link, &member};
  }
  Start start;
  start.round = state_.round;
  start.run_id = state_.run_id;
  start.node_count = static_cast<int>(by_rank.size());
  start.master_addr = by_rank.front().second->join.address;
  start.master_port = by_rank.front().second->join.worker_port;
  start.restart_count = state_.restart_count;
  start.restarts_max = state_.rules->restarts_max;
  start.world_size = 0;
  for (const auto& entry : by_rank) start.world_size += entry.second->join.local_world_size;
  state_.phase = RunPhase::kSealed;
  state_.cause.reset();
  state_.world_size = start.world_size;
  state_.node_count = start.node_count;
  state_.words.clear();
  state_.words_due.reset();
  int rank_first = 0;
  for (auto& [link, member] : by_rank) {
    member->phase = MemberPhase::kRunning;
    start.node_rank = *member->node_rank;
    start.rank_first = rank_first;
    rank_first += member->join.local_world_size;
    Send(link, start);
  }
}

void Stepper::Break(Failure cause) {
  state_.phase = RunPhase::kBroken;
  state_.deadline = now_ + kStopTimeout;
  for (auto& [link, member] : state_.members) {
    member.phase = MemberPhase::kStopping;
    Send(link, Stop{state_.round, cause});
  }
  state_.cause = std::move(cause);
  AdvanceIfStopped();
}

void Stepper::AdvanceIfStopped() {
  for (const auto& entry : state_.members) {
    if (entry.second.phase == MemberPhase::kStopping) return;
  }
  if (!state_.members.empty() && MayRestart(state_)) {
    FormNextRound();
  } else {
    CloseWithFailure(*state_.cause);
  }
}

void Stepper::FormNextRound() {
  state_.phase = RunPhase::kForming;
  state_.round = RoundId{ToNumber(state_.round) + 1};
  ++state_.restart_count;
  state_.deadline = now_ + state_.rules->join_timeout;
  for (auto& entry : state_.members) entry.second.phase = MemberPhase::kWaiting;
  effects_.emplace_back(std::in_place_type<RoundChanged>, RoundChanged{state_.round});
  SealIfComplete();
  TellWaiting();
}

void Stepper::CloseWithFailure(Failure cause) {
  Verdict verdict = MakeVerdict();
  verdict.exit_code = ToExitCode(cause);
  state_.cause = cause;
  verdict.cause = std::move(cause);
  Close(std::move(verdict));
}

void Stepper::Close(Verdict verdict) {
  state_.phase = RunPhase::kClosed;
  state_.words.clear();
  state_.words_due.reset();
  for (const auto& entry : state_.members) {
    Send(entry.first, Finish{verdict});
    End(entry.first);
  }
  state_.verdict = std::move(verdict);
}

// ---- Parts

// A run without any node is over, whatever restarts were left: nobody is there to wait for a
// replacement.
void Stepper::RemoveMember(LinkId link, Failure reason) {
  state_.members.erase(link);
  switch (state_.phase) {
    case RunPhase::kForming:
      if (!state_.may_restart) {
        CloseWithFailure(std::move(reason));
      } else if (state_.members.empty()) {
        state_.phase = RunPhase::kClosed;
        state_.words_due.reset();
      } else {
        TellWaiting();
      }
      return;
    case RunPhase::kSealed:
      Break(std::move(reason));
      return;
    case RunPhase::kBroken:
      AdvanceIfStopped();
      return;
    case RunPhase::kClosed:
      return;
  }
}

// Those who asked for a rank have it, and so have those who were in an earlier round; the others
// take what is free, the lowest first, in the order in which they joined.
void Stepper::GiveRanks() {
  std::set<int> free;
  for (int rank = 0; rank < static_cast<int>(state_.members.size()); ++rank)
    free.insert(free.end(), rank);
  std::vector<Member*> unranked;
  for (auto& entry : state_.members) {
    if (entry.second.node_rank) {
      free.erase(*entry.second.node_rank);
    } else {
      unranked.push_back(&entry.second);
    }
  }
  std::sort(unranked.begin(), unranked.end(),
            [](const Member* a, const Member* b) { return a->order < b->order; });
  for (Member* member : unranked) member->node_rank = free.extract(free.begin()).value();
}

// A node that has just joined is told at once; the others when the words have changed and the last
// ones are old enough.
void Stepper::TellWaiting() {
  if (!state_.rules || (state_.phase != RunPhase::kForming && state_.phase != RunPhase::kBroken))
    return;
  std::string words = WaitingWords(state_);
  if (words != state_.words) {
    state_.words = std::move(words);
    ++state_.words_version;
  }
  const TimePoint due = state_.words_sent ? *state_.words_sent + kWaitingInterval : now_;
  const bool all = now_ >= due;
  const auto remaining = state_.phase == RunPhase::kForming ? Until(state_.deadline, now_)
                                                            : state_.rules->join_timeout;
  state_.words_due.reset();
  for (auto& [link, member] : state_.members) {
    if (member.phase != MemberPhase::kWaiting || member.words_told == state_.words_version)
      continue;
    if (!all && member.words_told != 0) {
      state_.words_due = due;
      continue;
    }
    if (member.words_told != 0 || !state_.words_sent) state_.words_sent = now_;
    member.words_told = state_.words_version;
    Send(link, Waiting{state_.words, remaining});
  }
}

Verdict Stepper::MakeVerdict() const {
  Verdict verdict;
  verdict.round = state_.round;
  verdict.restart_count = state_.restart_count;
  verdict.restarts_max = state_.rules ? state_.rules->restarts_max : 0;
  verdict.world_size = state_.world_size;
  verdict.node_count = state_.node_count;
  return verdict;
}

}  // namespace

RunState MakeRun(std::string run_id) {
  RunState state;
  state.run_id = std::move(run_id);
  return state;
}

std::vector<MembershipEffect> Step(RunState& state, const MembershipEvent& event, TimePoint now) {
  Stepper stepper(state, now);
  std::visit(stepper, event);
  return stepper.TakeEffects();
}

std::optional<TimePoint> NextDeadline(const RunState& state) {
  switch (state.phase) {
    case RunPhase::kForming:
      if (!state.rules) return std::nullopt;
      return state.words_due ? std::min(*state.words_due, state.deadline) : state.deadline;
    case RunPhase::kBroken:
      return state.deadline;
    case RunPhase::kSealed:
    case RunPhase::kClosed:
      return std::nullopt;
  }
  return std::nullopt;
}

bool IsEnding(const RunState& state) {
  return state.phase == RunPhase::kClosed ||
         (state.phase == RunPhase::kBroken && !MayRestart(state));
}

bool IsDrained(const RunState& state) {
  return state.members.empty() && (state.phase == RunPhase::kClosed || !state.rules);
}

}  // namespace ddprun
