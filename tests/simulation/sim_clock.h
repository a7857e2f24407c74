// SPDX-License-Identifier: Apache-2.0
// Simulated time: what is to happen, in order. Time passes only from one event to the next, so that
// an hour of waiting costs nothing, and everything that depends on it happens the same way each
// time.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <utility>
#include <vector>

#include "rendezvous/values/session_types.h"

namespace ddprun {

// Events that live and die together: those of one process. The default belongs to nobody.
enum class SimGroup : std::uint32_t {};
inline constexpr SimGroup kNoGroup{0};

class SimClock {
 public:
  using Action = std::function<void()>;
  struct Event {
    std::uint32_t slot = std::numeric_limits<std::uint32_t>::max();
    std::uint64_t number = 0;
  };

  SimClock() : groups_(1) {}
  SimClock(const SimClock&) = delete;
  SimClock& operator=(const SimClock&) = delete;

  TimePoint now() const { return now_; }
  std::uint64_t events_run() const { return events_run_; }

  // Events of one time happen in the order in which they were asked for. A time that has passed
  // means now.
  Event At(TimePoint time, Action action, SimGroup group = kNoGroup);
  Event After(Duration delay, Action action, SimGroup group = kNoGroup) {
    return At(now_ + delay, std::move(action), group);
  }
  // What has happened or was cancelled is ignored.
  void Cancel(Event event);

  SimGroup NewGroup();
  // None of its events so far will happen. It may have new ones, and is not stopped.
  void CancelAll(SimGroup group);
  // Its events that become due wait, and happen in their order when it goes on.
  void Stop(SimGroup group);
  void Continue(SimGroup group);

  // False: nothing is left to happen (until then, inclusive).
  bool RunNext() { return RunNextUntil(TimePoint::max()); }
  bool RunNextUntil(TimePoint time);
  // What is due until then, inclusive; then it is that time.
  void RunUntil(TimePoint time);
  void RunFor(Duration duration) { RunUntil(now_ + duration); }

 private:
  struct Due {
    TimePoint time;
    std::uint64_t order;
    std::uint32_t slot;
    bool operator>(const Due& other) const {
      return time != other.time ? time > other.time : order > other.order;
    }
  };
  struct Slot {
    Action action;
    std::uint64_t number = 0;  // of the event that has the slot; 0: free
    SimGroup group = kNoGroup;
    std::uint64_t life = 0;  // of the group
  };
  struct Group {
    std::uint64_t life = 0;
    bool stopped = false;
    std::vector<std::uint32_t> waiting;  // slots
  };

  Group& Of(SimGroup group) { return groups_[static_cast<std::size_t>(group)]; }
  void Free(std::uint32_t slot);
  void Push(TimePoint time, std::uint64_t order, std::uint32_t slot);

  TimePoint now_{std::chrono::hours(1)};  // so that subtracting is safe
  std::uint64_t last_number_ = 0;
  std::uint64_t events_run_ = 0;
  std::vector<Due> due_;  // a heap
  std::vector<Slot> slots_;
  std::vector<std::uint32_t> free_;
  std::vector<Group> groups_;
};

}  // namespace ddprun
