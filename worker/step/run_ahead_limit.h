// SPDX-License-Identifier: Apache-2.0
// Limits how many steps the host may be ahead of the device, so that a step which does not end is
// detected while few steps are queued behind it.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>

#include "worker/accelerator/accelerator.h"
#include "worker/progress/graph_steps.h"

namespace ddprun {

// A step on the device has not ended in time: one sentence.
struct StepHangs : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class RunAheadLimit {
 public:
  // Enough that a device never waits for the host to queue the next step.
  static constexpr std::size_t kStepsAhead = 8;

  using MakeMark = std::function<std::unique_ptr<StreamMark>()>;

  // `steps`, which must outlive this, receives those that are queued; `who` is the subject of what
  // is thrown: "rank 1".
  RunAheadLimit(MakeMark make_mark, GraphSteps& steps, std::string who)
      : make_mark_(std::move(make_mark)), steps_(&steps), who_(std::move(who)) {}

  // The step with this number has been queued. Waits until the device is kStepsAhead steps behind
  // or less. Throws StepHangs if its oldest step does not end within `limit`.
  void EndStep(std::int64_t number, std::chrono::milliseconds limit);

  // Waits until all steps have ended, each within `limit`; throws as EndStep() does.
  void AwaitAll(std::chrono::milliseconds limit);

 private:
  void AwaitOldest(std::chrono::milliseconds limit);

  MakeMark make_mark_;
  GraphSteps* steps_;
  std::string who_;
};

}  // namespace ddprun
