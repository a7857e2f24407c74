// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/membership/membership_preemption.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "rendezvous/base/limits.h"
#include "rendezvous/membership/join_rules.h"
#include "rendezvous/membership/operator_rules.h"

namespace ddprun {
namespace {

void TellAll(MembershipStep& step, const Preemption& preemption) {
  for (const auto& entry : step.state.members) {
    if (entry.second.join.hears_preemption) step.SendTo(entry.second, preemption);
  }
}

bool Goes(const Member& member, TimePoint now) {
  return member.notice && member.notice->until > now && !member.leaving &&
         member.drained_by.empty();
}

// The member's notice is the run's from now on.
Preemption Announce(MembershipStep& step, const Member& member) {
  const std::uint64_t last = step.state.preemption ? step.state.preemption->number : 0;
  step.state.preemption = {.number = last + 1,
                           .until = member.notice->until,
                           .node_id = member.join.node_id,
                           .reason = member.notice->reason};
  Preemption told = *PreemptionOf(step.state, step.now);
  TellAll(step, told);
  return told;
}

// The earliest of those that stand. False: none does.
bool AnnounceNext(MembershipStep& step) {
  const Member* next = nullptr;
  for (const auto& entry : step.state.members) {
    const Member& member = entry.second;
    if (!Goes(member, step.now)) continue;
    if (next == nullptr || member.notice->until < next->notice->until) next = &member;
  }
  if (next != nullptr) Announce(step, *next);
  return next != nullptr;
}

// When its node is drained at the latest: the workers have half of the time to save, and what it
// takes to stop them is left.
TimePoint DrainTime(const RunState& state, const MemberNotice& notice) {
  return notice.until - std::min<Duration>(notice.given / 2, StopTimeoutOf(state));
}

}  // namespace

std::optional<Preemption> PreemptionOf(const RunState& state, TimePoint now) {
  if (!state.preemption || state.preemption->until <= now) return std::nullopt;
  const PreemptionNotice& notice = *state.preemption;
  const auto member = state.members.find(notice.node_id);
  if (member == state.members.end()) return std::nullopt;
  return Preemption{.number = notice.number,
                    .remaining = std::chrono::ceil<std::chrono::milliseconds>(notice.until - now),
                    .host = member->second.join.host,
                    .node_rank = member->second.node_rank.value_or(-1),
                    .reason = notice.reason};
}

void TellPreemption(MembershipStep& step, const Member& member) {
  if (!member.join.hears_preemption) return;
  if (const auto preemption = PreemptionOf(step.state, step.now)) step.SendTo(member, *preemption);
}

void EndPreemptionOf(MembershipStep& step, const NodeId& id) {
  const auto& notice = step.state.preemption;
  if (!notice || notice->node_id != id || notice->until <= step.now) return;
  if (step.state.phase == RunPhase::kClosed) return;
  if (AnnounceNext(step)) return;
  TellAll(step, Preemption{.number = notice->number});
  step.state.preemption->until = step.now;
}

void Preemptions::Take(Member& member, const PreemptionReport& report) {
  if (state_.phase == RunPhase::kClosed) return;
  if (report.withdrawn) {
    Withdraw(member);
  } else if (report.saved != 0) {
    member.saved_for = report.saved;
  } else {
    Give(member, report);
  }
  DrainIfDue();
}

// A scheduler gives notice to all nodes of a job at about the same time, and a node repeats its own
// on a new stream: that is one notice. One with an earlier deadline is news.
void Preemptions::Give(Member& member, const PreemptionReport& report) {
  const auto remaining =
      std::clamp<std::chrono::milliseconds>(report.remaining, kNoticeMin, kNoticeMax);
  const TimePoint until = now_ + remaining;
  member.notice = {.until = until, .given = remaining, .reason = report.reason};
  if (state_.phase == RunPhase::kSealed && !IsInRound(member) && !member.join.hosts_service)
    return Drain({&member});  // a spare: no workers need to know
  PlanDrain();
  const bool stands = PreemptionOf(state_, now_).has_value();
  if (stands && until > state_.preemption->until - kSameNoticeTime)
    return TellPreemption(step_, member);
  const Preemption told = Announce(step_, member);
  step_.AddNotice(NoticeKind::kNodeNotice, &member).words =
      absl::StrCat(ToSentence(told), "; ", PlanWords(member));
}

void Preemptions::Withdraw(Member& member) {
  if (!member.notice) return;
  member.notice.reset();
  PlanDrain();
  EndPreemptionOf(step_, member.join.node_id);
}

void Preemptions::PlanDrain() {
  state_.drain_due.reset();
  for (const auto& entry : state_.members) {
    if (!Goes(entry.second, now_)) continue;
    const TimePoint due = DrainTime(state_, *entry.second.notice);
    state_.drain_due = std::min(state_.drain_due.value_or(due), due);
  }
}

Preemptions::Plan Preemptions::MakePlan() const {
  Plan plan;
  for (auto& entry : state_.members) {
    Member& member = entry.second;
    plan.succeeded = plan.succeeded || member.phase == MemberPhase::kSucceeded;
    if (member.leaving || !member.drained_by.empty()) continue;
    if (!Goes(member, now_)) {
      ++plan.staying;
    } else if (!member.join.hosts_service) {
      plan.going.push_back(&member);
    }
  }
  std::stable_sort(plan.going.begin(), plan.going.end(), [](const Member* a, const Member* b) {
    return a->notice->until < b->notice->until;
  });
  return plan;
}

std::string Preemptions::PlanWords(const Member& member) const {
  if (member.join.hosts_service) return "it hosts the run's service, and the run ends with it";
  const int staying = MakePlan().staying;
  if (staying >= state_.rules->nodes_min) return "it is drained once the workers have saved";
  return absl::StrCat("it is not drained, as the run needs ", Nodes(state_.rules->nodes_min),
                      " and has ", staying, " that stay");
}

bool Preemptions::AllHaveSaved() const {
  if (state_.phase != RunPhase::kSealed || !PreemptionOf(state_, now_)) return false;
  return std::all_of(state_.members.begin(), state_.members.end(), [this](const auto& entry) {
    const Member& member = entry.second;
    return member.phase != MemberPhase::kRunning || member.saved_for == state_.preemption->number;
  });
}

// Where too few nodes stay, another one may still join: asked again when half of the rest is over.
void Preemptions::DrainIfDue() {
  if (state_.phase == RunPhase::kClosed) return;
  if (state_.preemption && state_.preemption->until <= now_) AnnounceNext(step_);
  if (!state_.drain_due) return;
  const bool due = *state_.drain_due <= now_;
  if (!due && !AllHaveSaved()) return;
  const Plan plan = MakePlan();
  if (plan.going.empty()) {
    state_.drain_due.reset();
  } else if (plan.staying >= state_.rules->nodes_min && !plan.succeeded && !IsEnding(state_)) {
    state_.drain_due.reset();
    Drain(plan.going);
  } else if (due) {
    const TimePoint until = plan.going.front()->notice->until;
    const Duration left = until - now_;
    state_.drain_due = left > kNoticeMin ? now_ + left / 2 : until;  // then the next one counts
  }
}

void Preemptions::Drain(const std::vector<Member*>& going) {
  const Member* first = nullptr;  // of those that have workers
  for (Member* const member : going) {
    const auto seconds = std::chrono::round<std::chrono::seconds>(member->notice->given);
    member->drained_by =
        absl::StrCat("its notice (", member->notice->reason, ", ", seconds.count(), " s)");
    if (first == nullptr && IsInRound(*member)) first = member;
  }
  if (state_.phase == RunPhase::kBroken) return;  // they are let go when its workers have stopped
  if (first != nullptr) return rounds_.Break(DrainFailure(*first));
  std::vector<Loss> losses;
  for (const Member* const member : going) {
    const Failure why = DrainFailure(*member);
    roster_.LetGo(NodeId(member->join.node_id), why);
    losses.push_back(Loss{why});
  }
  rounds_.React(std::move(losses));
}

}  // namespace ddprun
