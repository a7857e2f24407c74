// SPDX-License-Identifier: Apache-2.0
#include "worker/train/step/run_ahead_limit.h"

#include <algorithm>
#include <thread>

namespace ddprun {
namespace {

using Clock = std::chrono::steady_clock;

// Polling interval: short against a step at first, then longer.
constexpr std::chrono::microseconds kFirstPause{20};
constexpr std::chrono::microseconds kLongestPause{200};

}  // namespace

void RunAheadLimit::EndStep(std::int64_t number, std::chrono::milliseconds limit) {
  steps_->Add(number, make_mark_());
  while (steps_->queued() > options_.steps_ahead) AwaitOldest(limit);
}

void RunAheadLimit::AwaitAll(std::chrono::milliseconds limit) {
  while (steps_->queued() > 0) AwaitOldest(limit);
  options_.check();
}

void RunAheadLimit::AwaitOldest(std::chrono::milliseconds limit) {
  const Clock::time_point deadline = Clock::now() + limit;
  for (auto pause = kFirstPause; !steps_->OldestEnded();
       pause = std::min(2 * pause, kLongestPause)) {
    options_.check();
    if (Clock::now() >= deadline) {
      throw StepHangs(
          options_.who + ": a step on the GPU has not ended within " +
          std::to_string(std::chrono::duration_cast<std::chrono::seconds>(limit).count()) +
          " s; another rank hangs or is slower, whose own output may say why; "
          "--collective-timeout gives it longer");
    }
    std::this_thread::sleep_for(pause);
  }
}

}  // namespace ddprun
