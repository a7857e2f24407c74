// SPDX-License-Identifier: Apache-2.0
// Limits how many steps the host may be ahead of the device, so that a step which does not end is
// detected while few steps are queued behind it, and few have to be undone when a round ends.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "ddprun/detail/interrupt.h"
#include "worker/library/accelerator/accelerator.h"
#include "worker/train/step/graph_steps.h"

namespace ddprun {

// A step on the device has not ended in time.
struct StepHangs : PeerError {
  using PeerError::PeerError;
};

class RunAheadLimit {
 public:
  // Enough that a device never waits for the host to queue the next step.
  static constexpr std::size_t kStepsAhead = 8;
  // Where each step costs memory for a copy of the state: one step runs, and the next is there.
  static constexpr std::size_t kStepsAheadIfKept = 2;

  using MakeMark = std::function<std::unique_ptr<StreamMark>()>;

  struct Options {
    std::string who;  // the subject of what is thrown: "rank 1"
    std::size_t steps_ahead = kStepsAhead;
    // Throws if there is no use in waiting: each wait ends then.
    std::function<void()> check = [] {};
  };

  // `steps`, which must outlive this, receives those that are queued.
  RunAheadLimit(MakeMark make_mark, GraphSteps& steps, Options options)
      : make_mark_(std::move(make_mark)), steps_(&steps), options_(std::move(options)) {}

  // The step with this number has been queued. Waits until the device is `steps_ahead` steps behind
  // or less. Throws StepHangs if its oldest step does not end within `limit`.
  void EndStep(std::int64_t number, std::chrono::milliseconds limit);

  // Waits until all steps have ended, each within `limit`; throws as EndStep() does.
  void AwaitAll(std::chrono::milliseconds limit);

 private:
  void AwaitOldest(std::chrono::milliseconds limit);

  MakeMark make_mark_;
  GraphSteps* steps_;
  Options options_;
};

}  // namespace ddprun
