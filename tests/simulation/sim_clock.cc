// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/sim_clock.h"

#include <algorithm>
#include <utility>

namespace ddprun {

SimClock::Event SimClock::At(TimePoint time, Action action, SimGroup group) {
  std::uint32_t slot = 0;
  if (free_.empty()) {
    slot = static_cast<std::uint32_t>(slots_.size());
    slots_.emplace_back();
  } else {
    slot = free_.back();
    free_.pop_back();
  }
  Slot& to = slots_[slot];
  to.action = std::move(action);
  to.number = ++last_number_;
  to.group = group;
  to.life = Of(group).life;
  Push(std::max(time, now_), to.number, slot);
  return {slot, to.number};
}

void SimClock::Push(TimePoint time, std::uint64_t order, std::uint32_t slot) {
  due_.push_back({time, order, slot});
  std::push_heap(due_.begin(), due_.end(), std::greater<>());
}

void SimClock::Cancel(Event event) {
  if (event.slot >= slots_.size() || slots_[event.slot].number != event.number) return;
  // The heap's entry still names the slot, which is freed when that comes up.
  slots_[event.slot].action = nullptr;
}

void SimClock::Free(std::uint32_t slot) {
  slots_[slot].action = nullptr;
  slots_[slot].number = 0;
  free_.push_back(slot);
}

SimGroup SimClock::NewGroup() {
  groups_.emplace_back();
  return SimGroup{static_cast<std::uint32_t>(groups_.size() - 1)};
}

void SimClock::CancelAll(SimGroup group) {
  Group& of = Of(group);
  ++of.life;
  of.stopped = false;
  for (const std::uint32_t slot : std::exchange(of.waiting, {})) Free(slot);
}

void SimClock::Stop(SimGroup group) { Of(group).stopped = true; }

void SimClock::Continue(SimGroup group) {
  Of(group).stopped = false;
  for (const std::uint32_t slot : std::exchange(Of(group).waiting, {})) {
    Push(now_, ++last_number_, slot);
  }
}

bool SimClock::RunNextUntil(TimePoint time) {
  while (!due_.empty() && due_.front().time <= time) {
    const Due next = due_.front();
    std::pop_heap(due_.begin(), due_.end(), std::greater<>());
    due_.pop_back();
    Slot& slot = slots_[next.slot];
    Group& group = Of(slot.group);
    if (!slot.action || slot.life != group.life) {
      Free(next.slot);
      continue;
    }
    now_ = next.time;
    if (group.stopped) {
      group.waiting.push_back(next.slot);
      return true;
    }
    // Moved out, since what happens may ask for more events.
    const Action action = std::move(slot.action);
    Free(next.slot);
    ++events_run_;
    action();
    return true;
  }
  return false;
}

void SimClock::RunUntil(TimePoint time) {
  while (RunNextUntil(time)) {
  }
  now_ = std::max(now_, time);
}

}  // namespace ddprun
