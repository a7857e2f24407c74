// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>

namespace ddprun {

// How long a step may take before it is taken for one that hangs: a few times the longest of the
// latest steps, as some of them wait for all that a device has queued. Pure.
class StepPatience {
 public:
  using Seconds = std::chrono::duration<double>;

  void Add(Seconds step);
  Seconds Get() const;

 private:
  static constexpr int kTimes = 3;
  static constexpr std::int64_t kWindow = 32;  // steps

  std::int64_t steps_ = 0;  // of this window
  Seconds longest_{0};
  Seconds longest_before_{0};  // of the window before
};

}  // namespace ddprun
