// SPDX-License-Identifier: Apache-2.0
// One step of the membership core, for its own files only: the state, the time, and the effects so
// far; and the rules that only these files use. Roster has the members, Rounds the rounds,
// RankReports what nodes report of their ranks; membership.cc handles the events.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "proto/failure_record.h"
#include "rendezvous/membership/membership.h"
#include "rendezvous/membership/restart_rules.h"

namespace ddprun {

inline bool MayRestart(const RunState& state) { return !WhyNoNextRound(state).has_value(); }

inline bool IsInRound(const Member& member) { return member.phase != MemberPhase::kWaiting; }

// Heartbeats per lease: one may be late and one lost before the lease expires.
inline constexpr int kHeartbeatsPerLease = 4;

// Why a host has no place in the next round, for all that are in it.
inline void AddLeftOut(RunState& state, const std::string& words) {
  if (state.left_out.size() >= kFailureMessageBytesMax) return;  // the sentence is cut there
  if (!state.left_out.empty()) state.left_out += "; ";
  state.left_out += words;
}

// One that got no signal and leaves between two rounds has a reason of its own.
inline void NoteLeaver(RunState& state, const Failure& why) {
  if (state.phase == RunPhase::kBroken && why.signal == 0 && !why.message.empty())
    AddLeftOut(state, ToSentence(why));
}

inline Failure LossOf(const Member& member, std::string message) {
  Failure loss;
  loss.kind = FailureKind::kNodeLost;
  loss.host = member.join.host;
  loss.node_rank = member.node_rank.value_or(-1);
  loss.message = std::move(message);
  return loss;
}

struct MembershipStep {
  RunState& state;
  const TimePoint now;
  std::vector<MembershipEffect> effects;

  void Send(LinkId link, Directive directive) {
    effects.emplace_back(std::in_place_type<SendDirective>,
                         SendDirective{link, std::move(directive)});
  }
  void SendTo(const Member& member, Directive directive) {
    if (member.link) Send(*member.link, std::move(directive));
  }
  // In place, since GCC 12 takes the move of a variant made of the small type for a use of the
  // large one's members.
  void End(LinkId link) { effects.emplace_back(std::in_place_type<EndStream>, EndStream{link}); }
  void Refuse(LinkId link, absl::Status status) {
    Send(link, Refused{std::move(status)});
    End(link);
  }
  // For watchers, logs and metrics.
  RunNotice& AddNotice(NoticeKind kind, const Member* member = nullptr) {
    RunNotice note;
    note.kind = kind;
    note.round = state.round;
    note.restart_count = state.restart_count;
    if (member != nullptr) {
      note.node_id = member->join.node_id;
      note.host = member->join.host;
      note.node_rank = member->node_rank;
    }
    return std::get<RunNotice>(
        effects.emplace_back(std::in_place_type<RunNotice>, std::move(note)));
  }
};

// The round's start as this member is told of it.
Start StartOf(const RunState& state, const Member& member);

// As of now: without its outcome.
Verdict MakeVerdict(const RunState& state, TimePoint now);

// ---- rounds.cc

// The longest of all nodes applies.
Duration StopTimeoutOf(const RunState& state);

// ---- waiting_nodes.cc: what waiting nodes are told

// A node that has just joined is told at once; the others when the sentence has changed and the
// last one is old enough.
void TellWaiting(MembershipStep& step, Member* newcomer = nullptr);

// ---- membership_preemption.cc: notices

// To a node that comes (back), or whose notice counts as the one that stands.
void TellPreemption(MembershipStep& step, const Member& member);

// The machine is gone before its time, or stays, and the others may go on for long. Another one's
// notice that counted as the same is told then.
void EndPreemptionOf(MembershipStep& step, const NodeId& id);

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
// the run's RankOrder. A smaller round has only the ranks below its size: members above it move.
void AssignRanks(RunState& state, std::vector<Member*>& chosen);

// Counts the workers of `chosen`, sorted by rank, among those of their roles: first those of the
// first node that has a role.
void AssignRoleRanks(const std::vector<Member*>& chosen);

}  // namespace ddprun
