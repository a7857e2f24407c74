// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "rendezvous/base/limits.h"
#include "rendezvous/membership/join_rules.h"
#include "rendezvous/membership/membership_step.h"

namespace ddprun {
namespace {

std::chrono::milliseconds Until(TimePoint deadline, TimePoint now) {
  return std::max(std::chrono::milliseconds{0},
                  std::chrono::duration_cast<std::chrono::milliseconds>(deadline - now));
}

void Notify(MembershipStep& step, Member& member) {
  std::chrono::milliseconds remaining{0};
  if (step.state.phase == RunPhase::kForming) {
    remaining = Until(FormingUntil(step.state), step.now);
  } else if (step.state.phase == RunPhase::kBroken) {
    remaining = Until(step.state.deadline, step.now);
  }
  member.words_told = step.state.words_version;
  step.SendTo(member, Waiting{step.state.words, remaining});
}

}  // namespace

void TellWaiting(MembershipStep& step, Member* newcomer) {
  if (!step.state.rules || step.state.phase == RunPhase::kClosed) return;
  if (step.state.waiting == 0) {
    step.state.words_due.reset();
    return;
  }
  const auto intervals = static_cast<int>(1 + step.state.members.size() / kNodesPerWaitingInterval);
  const TimePoint due =
      step.state.words_sent ? *step.state.words_sent + intervals * kWaitingInterval : step.now;
  const bool all = step.now >= due;
  // Composing the sentence takes time linear in the number of nodes: in a large run a newcomer gets
  // the last one.
  const bool exact =
      all || step.state.words.empty() || step.state.members.size() <= kExactWordsNodesMax;
  if (!exact) step.state.words_due = due;
  if (exact) {
    std::string words = WaitingWords(step.state);
    if (words != step.state.words) {
      step.state.words = std::move(words);
      ++step.state.words_version;
      step.state.words_due = due;
    }
  }
  if (!all) {
    if (newcomer != nullptr && newcomer->phase == MemberPhase::kWaiting &&
        newcomer->words_told != step.state.words_version) {
      Notify(step, *newcomer);
    }
    return;
  }
  step.state.words_due.reset();
  for (auto& entry : step.state.members) {
    Member& member = entry.second;
    if (member.phase != MemberPhase::kWaiting || !member.link ||
        member.words_told == step.state.words_version) {
      continue;
    }
    step.state.words_sent = step.now;
    Notify(step, member);
  }
}

}  // namespace ddprun
