// SPDX-License-Identifier: Apache-2.0
// One stage of a pipeline: runs its actions (actions.h) on one batch after the other, with its
// neighbours at the other ends of two links.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

#include "worker/train/metrics/step_clock.h"
#include "worker/train/pipeline/actions.h"
#include "worker/train/pipeline/rank_link.h"

namespace ddprun {

class Stage {
 public:
  struct Options {
    int index = 0;
    int stages = 1;
    PipelineSchedule schedule = PipelineSchedule::kOneForwardOneBackward;
    int micro_batches = 1;
    // This stage's parts of the model.
    std::function<at::Tensor(const at::Tensor&)> forward;
    // Mean loss of scores and labels; used on the last stage only.
    std::function<at::Tensor(const at::Tensor&, const at::Tensor&)> loss;
    // Called when the stage begins forward, backward or a wait for a neighbour (kGradients).
    std::function<void(StepSection)> enter = [](StepSection) {};
  };

  struct Batch {
    std::int64_t samples = 0;
    at::Tensor images;  // samples x ...; looked at on the first stage only
    at::Tensor labels;  // samples; on the last stage only
    // What the mean loss is multiplied with before backward: a number, and a scalar on the last
    // stage's device; undefined for 1.
    double factor = 1;
    at::Tensor scale = {};
    // Called before the last micro-batch's backward: that one may pass its gradients on.
    std::function<void()> before_last_backward = [] {};
  };

  // The links must outlive the stage; null where there is no neighbour.
  Stage(Options options, RankLink* previous, RankLink* next)
      : options_(std::move(options)), previous_(previous), next_(next) {}

  // Adds the batch's gradients to those of the parameters. On the last stage the mean loss,
  // detached; undefined on the others. Throws what the links and the model's functions throw.
  at::Tensor Train(const Batch& batch);

  // The scores of all samples on the last stage, without gradients; undefined on the others.
  at::Tensor Scores(std::int64_t samples, const at::Tensor& images);

  bool is_first() const { return previous_ == nullptr; }
  bool is_last() const { return next_ == nullptr; }

 private:
  class Pass;

  const Options options_;
  RankLink* const previous_;
  RankLink* const next_;
};

}  // namespace ddprun
