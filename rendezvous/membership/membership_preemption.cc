// SPDX-License-Identifier: Apache-2.0
// Notices that a machine of the run will be taken away: one node reports it, and all are told.
// Nothing else follows from it here: what a program does in the time is its own.
#include <algorithm>
#include <utility>

#include "rendezvous/base/limits.h"
#include "rendezvous/membership/membership_step.h"

namespace ddprun {

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

// A scheduler gives notice to all nodes of a job at about the same time, and a node repeats its own
// on each stream: that is one notice. One with an earlier deadline is news.
void MembershipStep::On(Member& member, const PreemptionReport& report) {
  if (state_.phase == RunPhase::kClosed) return;
  const auto remaining =
      std::clamp<std::chrono::milliseconds>(report.remaining, kNoticeMin, kNoticeMax);
  const TimePoint until = now_ + remaining;
  const std::uint64_t last = state_.preemption ? state_.preemption->number : 0;
  const bool stands = PreemptionOf(state_, now_).has_value();
  if (stands && until > state_.preemption->until - kSameNoticeTime) return;
  state_.preemption = {
      .number = last + 1, .until = until, .node_id = member.join.node_id, .reason = report.reason};
  const Preemption told = *PreemptionOf(state_, now_);
  AddNotice(NoticeKind::kNodeNotice, &member).words = ToSentence(told);
  TellAll(told);
}

void MembershipStep::TellAll(const Preemption& preemption) {
  for (const auto& entry : state_.members) {
    if (entry.second.join.hears_preemption) SendTo(entry.second, preemption);
  }
}

// To a node that comes (back).
void MembershipStep::TellPreemption(const Member& member) {
  if (!member.join.hears_preemption) return;
  if (const auto preemption = PreemptionOf(state_, now_)) SendTo(member, *preemption);
}

// The machine is gone before its time, and the others may go on for long.
void MembershipStep::EndPreemptionOf(const NodeId& id) {
  const auto& notice = state_.preemption;
  if (!notice || notice->node_id != id || notice->until <= now_) return;
  if (state_.phase != RunPhase::kClosed) TellAll(Preemption{.number = notice->number});
}

}  // namespace ddprun
