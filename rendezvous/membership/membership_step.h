// SPDX-License-Identifier: Apache-2.0
// One step of the membership core, for its own files only: membership.cc handles events and
// reports, membership_members.cc the members, membership_rounds.cc the begin and end of rounds,
// membership_preemption.cc notices. And the rules that only these use.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "rendezvous/membership/membership.h"
#include "rendezvous/membership/restart_rules.h"

namespace ddprun {

inline bool MayRestart(const RunState& state) { return !WhyNoNextRound(state).has_value(); }

inline bool IsInRound(const Member& member) { return member.phase != MemberPhase::kWaiting; }

// Heartbeats per lease: one may be late and one lost before the lease expires.
inline constexpr int kHeartbeatsPerLease = 4;

// One step: the state, the time, and the effects so far. The cases stand in the order of the
// diagram in RULES.md.
class MembershipStep {
 public:
  MembershipStep(RunState& state, TimePoint now) : state_(state), now_(now) {}

  void operator()(const NodeJoined& event);
  void operator()(const NodeReported& event);
  void operator()(const NodeGone& event);
  void operator()(const NodeLost& event);
  void operator()(const RunStopped& event);
  void operator()(const NodeDrained& event);
  void operator()(const Tick&);

  std::vector<MembershipEffect> TakeEffects() { return std::move(effects_); }

 private:
  // Reports of a member.
  void On(Member& member, const Join&);
  void On(Member& member, const WorkerFailed& report);
  void On(Member& member, const NodeSucceeded& report);
  void On(Member& member, const NodeStopped& report);
  void On(Member& member, const Leave& report);
  void On(Member& member, const Heartbeat& report);
  void On(Member& member, const CanBeKept& report);
  void TakeTime(Member& member, const RankTime& time);
  void TakeSlowRank(Member& member, const Progress& progress);
  void TakeDamages(Member& member, const Progress& progress);
  void TakeStill(Member& member, const std::vector<RanksInPlace>& still);
  void TellLate();
  void LookForStall();
  // On node 0's console, and on those of the nodes that run.
  void TellRanksWait(const std::string& words, bool tells_running);
  // The node leaves for the reason `words`, if the run can go on; `note` says what comes of it.
  void DrainBecause(const char* flag, const std::string& words, bool only_for_spare, Member& member,
                    RunNotice& note);
  void On(Member& member, const PreemptionReport& report);
  void TellAll(const Preemption& preemption);
  void TellPreemption(const Member& member);
  void EndPreemptionOf(const NodeId& id);
  void On(Member&, const LogLines&) {}      // the run has given them to LogSubscriptions
  void On(Member&, const FaultReport&) {}   // likewise to the caller that waits for it
  void On(Member&, const OwnerQueries&) {}  // likewise, as the next, to ConnectionOwners
  void On(Member&, const OwnerAnswers&) {}

  // Members.
  void RefuseJoin(LinkId link, const Join& join, Refused refused);
  void Enter(LinkId link, const Join& join, const Member* replaced);
  void Resume(LinkId link, Member& member);
  void Link(LinkId link, Member& member);
  void EndIfOpen(const Member& member);
  void SetPhase(Member& member, MemberPhase phase);
  void Count(MemberPhase phase, int more);
  struct Loss {
    Failure reason;
    bool was_in_round = false;
    bool was_silent_before_the_break = false;
    bool was_dead_before_it_stopped = false;
  };
  Loss Erase(const NodeId& id, Failure reason);
  void React(std::vector<Loss> losses);
  void React(const Loss& loss) { React(std::vector<Loss>(1, loss)); }
  void RemoveMember(const NodeId& id, Failure reason);
  RankTime TimeOfLost(const Member& member) const;
  bool IsTheCause(const Loss& loss) const;
  TimePoint NextLook() const;
  void ForgiveIfStopped();
  Failure LossOfSilent(const Member& member) const;
  std::optional<std::pair<NodeId, Failure>> TakePlace(const Join& join);
  void EndLeases();
  Loss LetGo(const NodeId& id, const Failure& reason);
  void LeaveNow(const NodeId& id);
  void LetLeaversGo();

  // Transitions.
  void SealIfReady();
  void Seal(std::vector<Member*> chosen);
  void Break(Failure cause);
  void Correct(Failure cause);
  void AdvanceIfStopped();
  void FormNextRound();
  std::chrono::milliseconds CountRestartIfFailed();
  void LeaveOutIfDue();
  void EndRun(Failure cause);
  void CloseWithFailure(Failure cause);
  void Close(Verdict verdict);

  // membership_growth.cc: a running round and the nodes that wait beside it.
  void Grow();
  void SetKept(Member& member, bool can_be_kept);

  Start StartOf(const Member& member) const;
  void TellWaiting(Member* newcomer = nullptr);
  void Notify(Member& member);
  Verdict MakeVerdict() const;

  Failure LossOf(const Member& member, std::string message) const {
    Failure loss;
    loss.kind = FailureKind::kNodeLost;
    loss.host = member.join.host;
    loss.node_rank = member.node_rank.value_or(-1);
    loss.message = std::move(message);
    return loss;
  }
  void Send(LinkId link, Directive directive) {
    effects_.emplace_back(std::in_place_type<SendDirective>,
                          SendDirective{link, std::move(directive)});
  }
  void SendTo(const Member& member, Directive directive) {
    if (member.link) Send(*member.link, std::move(directive));
  }
  // In place, since GCC 12 takes the move of a variant made of the small type for a use of the
  // large one's members.
  void End(LinkId link) { effects_.emplace_back(std::in_place_type<EndStream>, EndStream{link}); }
  void Refuse(LinkId link, absl::Status status) {
    Send(link, Refused{std::move(status)});
    End(link);
  }

  // For watchers, logs and metrics.
  RunNotice& AddNotice(NoticeKind kind, const Member* member = nullptr) {
    RunNotice note;
    note.kind = kind;
    note.round = state_.round;
    note.restart_count = state_.restart_count;
    if (member != nullptr) {
      note.node_id = member->join.node_id;
      note.host = member->join.host;
      note.node_rank = member->node_rank;
    }
    return std::get<RunNotice>(
        effects_.emplace_back(std::in_place_type<RunNotice>, std::move(note)));
  }

  RunState& state_;
  const TimePoint now_;
  std::vector<MembershipEffect> effects_;
};

// ---- report_rules.cc: what the service accepts from a member's reports. A member reports only
// about its own workers: its identity, its ranks and whether the run may continue are the service's
// own knowledge and are filled in from there, whatever the message says.

// A worker's failure, limited to what `member` may report: one of its own ranks, its own host, a
// kind that workers have, an exit code of 1 to 255 or an existing signal.
Failure WorkerFailureFrom(const Member& member, Failure reported);

// Where ranks were, limited to its own.
std::vector<RanksInPlace> OwnPlacesFrom(const Member& member, std::vector<RanksInPlace> reported);

// Why `member` leaves, limited to what it may report.
Failure LeaveReasonFrom(const Member& member, Failure reported);

// How its workers ended: each of them once, in ways that a node can observe.
std::vector<WorkerEnds> WorkerEndsFrom(const Member& member,
                                       const std::vector<WorkerEnds>& reported);

// ---- rank_assignment.cc: places and ranks in a round

// Members that had a place keep it; the others take the rest in the order of joining, up to the
// run's places. The pointers are into `state`.
std::vector<Member*> ChooseForRound(RunState& state);

// Assigns node ranks to `chosen` and sorts it by them. In a full round members that asked for a
// rank get it, and members that had one keep it; the others take the free ranks, lowest first, in
// the order of joining. A smaller round has only the ranks below its size: members above it move.
void GiveRanks(RunState& state, std::vector<Member*>& chosen);

// Counts the workers of `chosen`, sorted by rank, among those of their roles: first those of the
// first node that has a role.
void GiveRoleRanks(const std::vector<Member*>& chosen);

}  // namespace ddprun
