// SPDX-License-Identifier: Apache-2.0
// Notices that a machine of the run will be taken away: one node reports it, and all are told.
// Nothing else follows from it here: what a program does in the time is its own.
#include <algorithm>
#include <utility>

#include "rendezvous/base/limits.h"
#include "rendezvous/membership/membership_step.h"

namespace ddprun {
namespace {

void TellAll(MembershipStep& step, const Preemption& preemption) {
  for (const auto& entry : step.state.members) {
    if (entry.second.join.hears_preemption) step.SendTo(entry.second, preemption);
  }
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

void TakePreemption(MembershipStep& step, const Member& member, const PreemptionReport& report) {
  if (step.state.phase == RunPhase::kClosed) return;
  const auto remaining =
      std::clamp<std::chrono::milliseconds>(report.remaining, kNoticeMin, kNoticeMax);
  const TimePoint until = step.now + remaining;
  const std::uint64_t last = step.state.preemption ? step.state.preemption->number : 0;
  const bool stands = PreemptionOf(step.state, step.now).has_value();
  if (stands && until > step.state.preemption->until - kSameNoticeTime) return;
  step.state.preemption = {
      .number = last + 1, .until = until, .node_id = member.join.node_id, .reason = report.reason};
  const Preemption told = *PreemptionOf(step.state, step.now);
  step.AddNotice(NoticeKind::kNodeNotice, &member).words = ToSentence(told);
  TellAll(step, told);
}

void TellPreemption(MembershipStep& step, const Member& member) {
  if (!member.join.hears_preemption) return;
  if (const auto preemption = PreemptionOf(step.state, step.now)) step.SendTo(member, *preemption);
}

void EndPreemptionOf(MembershipStep& step, const NodeId& id) {
  const auto& notice = step.state.preemption;
  if (!notice || notice->node_id != id || notice->until <= step.now) return;
  if (step.state.phase != RunPhase::kClosed) TellAll(step, Preemption{.number = notice->number});
}

}  // namespace ddprun
