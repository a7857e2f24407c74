// SPDX-License-Identifier: Apache-2.0
// Workers of a node that still run, silently, long after others have ended with success: as of a
// program that keeps its interpreter alive. Pure: no I/O, no clock.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "rendezvous/values/session_types.h"

namespace ddprun {

class LateWorkers {
 public:
  // A round begins with so many workers, which all live.
  void Start(int workers) {
    End();
    live_.assign(static_cast<std::size_t>(workers), true);
  }
  // The round is over or being stopped.
  void End() { *this = {}; }

  // One has written or reported something.
  void OnSign(TimePoint now) { last_sign_ = now; }
  // One has ended, with success.
  void OnExit(int local_rank, TimePoint now);

  // kLateEndTime after the last worker's end and the last sign. Absent: none has ended, or none is
  // left, or they were taken.
  std::optional<TimePoint> due() const { return due_; }
  // Once, when they are due: their local ranks. Else empty.
  std::vector<int> Take(TimePoint now);

 private:
  std::vector<bool> live_;  // by local rank
  TimePoint last_sign_{};
  std::optional<TimePoint> due_;
};

}  // namespace ddprun
