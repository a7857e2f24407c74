// SPDX-License-Identifier: Apache-2.0
// The latest events of a run, for those who ask later. Pure.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "rendezvous/membership/membership.h"

namespace ddprun {

struct EventTime {
  std::chrono::system_clock::time_point wall;
  TimePoint steady;
};

// Numbers the events of a run from 1, and keeps the last kEventHistoryMax, and beside these
// kRoutineHistoryMax of those of IsRoutine(), so that many nodes that join push out nothing that
// explains a failure.
class EventHistory {
 public:
  void Add(const std::string& run_id, const RunNotice& note, EventTime time);
  // Lines of JSON (run_event.h), without line ends, in their order.
  std::vector<std::string> Lines() const;
  // The last one added. Only after Add().
  std::string newest() const;

 private:
  struct Kept {
    std::uint64_t number = 0;
    EventTime time;
    RunNotice note;    // of a routine event: most of these are never asked for
    std::string line;  // of another: what led to a failure can be large
    std::string Line(const std::string& run_id) const;
  };

  std::string run_id_;
  std::uint64_t last_number_ = 0;
  std::deque<Kept> routine_;
  std::deque<Kept> others_;
};

}  // namespace ddprun
