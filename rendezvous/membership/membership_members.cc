// SPDX-License-Identifier: Apache-2.0
// Who is in the run: members come, come back, are lost and leave.
#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "rendezvous/membership/join_rules.h"
#include "rendezvous/membership/membership_step.h"
#include "rendezvous/membership/operator_rules.h"
#include "rendezvous/values/first_cause.h"
#include "rendezvous/values/worker_outcomes.h"

namespace ddprun {
namespace {

// Of a node that is a member no more.
NoticeKind KindOf(const Failure& why) {
  if (why.kind == FailureKind::kNodeDrained) return NoticeKind::kNodeDrained;
  return why.kind == FailureKind::kNodeInterrupted ? NoticeKind::kNodeLeft : NoticeKind::kNodeLost;
}

// What a worker that lost its peers reports; the loss itself is then the first cause.
bool MayBeAftermath(const Failure& cause) {
  return cause.kind == FailureKind::kWorkerExited || cause.kind == FailureKind::kWorkerSignaled ||
         cause.kind == FailureKind::kWorkerHung;
}

}  // namespace

// Whoever replaces a node goes before those who stand by, as it did.
void MembershipStep::Enter(LinkId link, const Join& join, const Member* replaced) {
  if (!state_.rules) {
    state_.rules = RulesOf(join);
    state_.deadline = now_ + state_.rules->join_timeout;
  }
  ForgiveLeftOut(state_.restarts, join.host);
  Member& member = state_.members[join.node_id];
  member.join = join;
  member.order = replaced != nullptr ? replaced->order : ++state_.joins;
  member.seated = replaced != nullptr && replaced->seated;
  Count(member.phase, 1);
  if (join.node_rank) {
    // Where a round that runs has given it to another, it is free in the next.
    if (state_.places.emplace(*join.node_rank, join.node_id).second) {
      member.node_rank = join.node_rank;
    }
    state_.asked[*join.node_rank] = join.node_id;
  }
  Link(link, member);
  AddNotice(NoticeKind::kNodeJoined, &member);
  SealIfReady();
  TellWaiting(&member);
}

// What was under way when the stream broke may not have arrived: the node is told again where the
// run is, and says again what it said of its round.
void MembershipStep::Resume(LinkId link, Member& member) {
  if (member.link) {
    EndIfOpen(member);
    state_.links.erase(*member.link);
  }
  Link(link, member);
  AddNotice(NoticeKind::kNodeReturned, &member);
  member.words_told = 0;
  if (state_.phase == RunPhase::kClosed) {
    if (state_.verdict) Send(link, Finish{*state_.verdict});
    return;
  }
  if (member.phase == MemberPhase::kRunning) Send(link, StartOf(member));
  if (member.phase == MemberPhase::kStopping)
    Send(link, Stop{state_.round, *state_.cause, IsEnding(state_)});
  SealIfReady();
  TellWaiting(&member);
}

void MembershipStep::Link(LinkId link, Member& member) {
  member.link = link;
  member.last_seen = now_;
  state_.links.emplace(link, member.join.node_id);
  const auto lease = state_.rules->lease;
  if (lease.count() > 0 && !state_.lease_due) state_.lease_due = now_ + lease;
  Send(link,
       // Without a lease a stream's end is its node's end, whoever writes it down.
       Accepted{.lease = lease,
                .heartbeat = lease / kHeartbeatsPerLease,
                .durable = state_.durable && lease.count() > 0});
}

// Without a lease the streams of a run's nodes end with the run, else when the node has the
// verdict.
void MembershipStep::EndIfOpen(const Member& member) {
  const bool ended = state_.phase == RunPhase::kClosed && state_.rules->lease.count() == 0;
  if (member.link && !ended) End(*member.link);
}

void MembershipStep::SetPhase(Member& member, MemberPhase phase) {
  Count(member.phase, -1);
  member.phase = phase;
  Count(member.phase, 1);
}

void MembershipStep::Count(MemberPhase phase, int more) {
  if (phase == MemberPhase::kWaiting) state_.waiting += more;
  if (phase == MemberPhase::kRunning) state_.running += more;
  if (phase == MemberPhase::kStopping) state_.stopping += more;
}

// A node that comes anew with the rank of one that is away is that machine's next agent, or its
// replacement: whoever is still there under the old one is fenced. Who is to be removed, and why.
std::optional<std::pair<NodeId, Failure>> MembershipStep::TakePlace(const Join& join) {
  if (!join.node_rank) return std::nullopt;
  const auto asked = state_.asked.find(*join.node_rank);
  const auto place = state_.places.find(*join.node_rank);
  if (asked == state_.asked.end() && place == state_.places.end()) return std::nullopt;
  const NodeId id = asked != state_.asked.end() ? asked->second : place->second;
  Failure loss =
      LossOf(state_.members.at(id), absl::StrCat("its connection had ended, and node ", join.host,
                                                 " came with its --node-rank ", *join.node_rank));
  if (place != state_.places.end() && place->second == id) {
    state_.members.at(id).node_rank.reset();
    state_.places.erase(place);
  }
  return std::pair(id, std::move(loss));
}

MembershipStep::Loss MembershipStep::Erase(const NodeId& id, Failure reason) {
  const auto it = state_.members.find(id);
  Member& member = it->second;
  if (state_.phase != RunPhase::kClosed) AddNotice(KindOf(reason), &member).why = reason;
  Loss loss{std::move(reason), IsInRound(member)};
  loss.was_silent_before_the_break =
      member.phase == MemberPhase::kStopping &&
      member.last_seen + (member.link ? state_.rules->lease / 2 : Duration{0}) < state_.broke;
  Count(member.phase, -1);
  if (member.leaving) --state_.leaving;
  if (IsInRound(member) && member.phase != MemberPhase::kStopped) {
    const int first = member.rank_first;
    AddLostNode(member.join.host, {first, first + member.join.local_world_size - 1},
                state_.outcomes);
  }
  if (member.link) state_.links.erase(*member.link);
  if (member.node_rank) {
    const auto place = state_.places.find(*member.node_rank);
    if (place != state_.places.end() && place->second == id) state_.places.erase(place);
  }
  const auto asked = state_.asked.find(member.join.node_rank.value_or(-1));
  if (asked != state_.asked.end() && asked->second == id) state_.asked.erase(asked);
  state_.members.erase(it);
  return loss;
}

// Told in a verdict of its own: the run goes on, or ends for another reason.
MembershipStep::Loss MembershipStep::LetGo(const NodeId& id, const Failure& reason) {
  const Member& member = state_.members.at(id);
  if (member.link) {
    Verdict verdict = MakeVerdict();
    verdict.cause = reason;
    if (IsFailure(reason)) verdict.exit_code = ToExitCode(reason);
    Send(*member.link, Finish{std::move(verdict)});
    End(*member.link);
  }
  return Erase(id, reason);
}

void MembershipStep::LeaveNow(const NodeId& id) {
  std::vector<Loss> losses;
  losses.push_back(LetGo(id, Failure(*state_.members.at(id).leaving)));
  React(std::move(losses));
}

// Those that were asked to leave, and those that have said that they leave.
void MembershipStep::LetLeaversGo() {
  std::vector<std::pair<NodeId, Failure>> going;
  for (const auto& [id, member] : state_.members) {
    if (member.leaving) {
      going.emplace_back(id, *member.leaving);
    } else if (!member.drained_by.empty()) {
      going.emplace_back(id, DrainFailure(member, member.drained_by));
    }
  }
  for (const auto& [id, reason] : going) LetGo(id, reason);
}

// Of all who are lost in one step, so that no round is started with one of them. A run without any
// node is over, whatever restarts were left: nobody is there to wait for a replacement.
void MembershipStep::React(std::vector<Loss> losses) {
  if (losses.empty()) return;
  switch (state_.phase) {
    case RunPhase::kForming:
      if (!state_.may_restart) {
        CloseWithFailure(std::move(losses.front().reason));
      } else if (state_.members.empty()) {
        state_.phase = RunPhase::kClosed;
        state_.words_due.reset();
        state_.restart_due.reset();
      } else {
        SealIfReady();
        TellWaiting();
      }
      return;
    case RunPhase::kSealed: {
      const auto first = std::find_if(losses.begin(), losses.end(),
                                      [](const Loss& loss) { return loss.was_in_round; });
      if (first != losses.end()) Break(first->reason);
      return;
    }
    case RunPhase::kBroken:
      for (Loss& loss : losses) {
        if (IsTheCause(loss)) Correct(std::move(loss.reason));
      }
      AdvanceIfStopped();
      return;
    case RunPhase::kClosed:
      return;
  }
}

// Of a round that has broken. One whose agent died was not stopped by anyone: its peers' failures
// follow from that. Not so the death of one whose workers were gone already.
bool MembershipStep::IsTheCause(const Loss& loss) const {
  if (loss.reason.kind != FailureKind::kNodeLost) return false;
  return (loss.was_silent_before_the_break && MayBeAftermath(*state_.cause)) ||
         (loss.was_dead_before_it_stopped && TakesThePlaceOf(loss.reason, *state_.cause));
}

void MembershipStep::RemoveMember(const NodeId& id, Failure reason) {
  std::vector<Loss> losses;
  losses.push_back(Erase(id, std::move(reason)));
  React(std::move(losses));
}

// A service that looks at the time so late was itself stopped (a debugger, a virtual machine that
// moves) and heard nobody meanwhile, whoever spoke. All have half a lease to be heard.
void MembershipStep::ForgiveIfStopped() {
  const auto lease = state_.rules->lease;
  if (now_ - *state_.lease_due < lease / kHeartbeatsPerLease) return;
  for (auto& entry : state_.members) {
    Member& member = entry.second;
    member.last_seen = std::max(member.last_seen, now_ - LeaseOf(state_, member) / 2);
  }
}

void MembershipStep::EndLeases() {
  if (!state_.lease_due || now_ < *state_.lease_due) return;
  ForgiveIfStopped();
  std::vector<std::pair<TimePoint, NodeId>> over;
  for (const auto& [id, member] : state_.members) {
    if (member.last_seen + LeaseOf(state_, member) <= now_) over.emplace_back(member.last_seen, id);
  }
  // The one that fell silent first may be why the others did.
  std::sort(over.begin(), over.end());
  std::vector<Loss> losses;
  for (const auto& [last_seen, id] : over) {
    const Member& member = state_.members.at(id);
    if (state_.phase == RunPhase::kClosed) {
      EndIfOpen(member);
    } else if (member.link) {
      Refuse(*member.link, FencedForSilence(state_, member));
    }
    losses.push_back(Erase(id, LossOf(member, LostWords(state_, member))));
  }
  React(std::move(losses));
  state_.lease_due.reset();
  for (const auto& entry : state_.members) {
    const TimePoint due = entry.second.last_seen + LeaseOf(state_, entry.second);
    state_.lease_due = state_.lease_due ? std::min(*state_.lease_due, due) : due;
  }
}

}  // namespace ddprun
