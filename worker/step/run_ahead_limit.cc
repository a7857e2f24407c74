// SPDX-License-Identifier: Apache-2.0
#include "worker/step/run_ahead_limit.h"

#include <algorithm>
#include <stdexcept>
#include <thread>
#include <utility>

namespace ddprun {
namespace {

using Clock = std::chrono::steady_clock;

// Polling interval: short against a step at first, then longer.
constexpr std::chrono::microseconds kFirstPause{20};
constexpr std::chrono::microseconds kLongestPause{1000};

}  // namespace

RunAheadLimit::RunAheadLimit(MakeMark make_mark, std::chrono::milliseconds limit,
                             std::function<void()> give_up, std::string who)
    : make_mark_(std::move(make_mark)),
      limit_(limit),
      give_up_(std::move(give_up)),
      who_(std::move(who)) {}

void RunAheadLimit::EndStep() {
  marks_.push_back(make_mark_());
  while (marks_.size() > kStepsAhead) {
    AwaitOldest();
    marks_.pop_front();
  }
}

void RunAheadLimit::AwaitOldest() {
  const Clock::time_point deadline = Clock::now() + limit_;
  for (auto pause = kFirstPause; !marks_.front()->Passed();
       pause = std::min(2 * pause, kLongestPause)) {
    if (Clock::now() >= deadline) {
      give_up_();
      throw std::runtime_error(
          who_ + ": a step on the GPU has not ended within " +
          std::to_string(std::chrono::duration_cast<std::chrono::seconds>(limit_).count()) +
          " s; another rank hangs or is slower, whose own output may say why; "
          "--collective-timeout gives it longer");
    }
    std::this_thread::sleep_for(pause);
  }
}

}  // namespace ddprun
