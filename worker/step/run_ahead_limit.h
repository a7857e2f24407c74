// SPDX-License-Identifier: Apache-2.0
// Limits how many steps the host may be ahead of the device, so that a step which does not end is
// detected while few steps are queued behind it, and is given up after a timeout.
#pragma once

#include <chrono>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <string>

#include "worker/accelerator/accelerator.h"

namespace ddprun {

class RunAheadLimit {
 public:
  // Enough that a device never waits for the host to queue the next step.
  static constexpr std::size_t kStepsAhead = 8;

  using MakeMark = std::function<std::unique_ptr<StreamMark>()>;

  // `give_up` is called once, before EndStep() throws; `who` is the subject of what it says: "rank
  // 1".
  RunAheadLimit(MakeMark make_mark, std::chrono::milliseconds limit, std::function<void()> give_up,
                std::string who);

  // A step has been queued. Waits until the device is kStepsAhead steps behind or less. Throws
  // std::runtime_error if its oldest step does not end within the limit.
  void EndStep();

 private:
  void AwaitOldest();

  MakeMark make_mark_;
  std::chrono::milliseconds limit_;
  std::function<void()> give_up_;
  std::string who_;
  std::deque<std::unique_ptr<StreamMark>> marks_;
};

}  // namespace ddprun
