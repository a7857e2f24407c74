// SPDX-License-Identifier: Apache-2.0
// All stages of the model in this process, on its GPUs in turn. One thread queues the work of all
// of them: while a GPU computes a micro-batch, the next GPU computes the one before it. On a CPU
// the stages run one after the other, and the micro-batches save memory only.
#pragma once

#include <memory>
#include <vector>

#include "worker/train/parallel/parallel_strategy.h"
#include "worker/train/parallel/pipeline_plan.h"
#include "worker/train/pipeline/stage_module.h"

namespace ddprun {

class LocalPipeline : public ParallelStrategy {
 public:
  // `devices` has one for each stage; the first is the one that images are on. The model must
  // outlive the strategy.
  LocalPipeline(ImageModel& model, const PipelinePlan& plan, const std::vector<std::size_t>& cuts,
                std::vector<at::Device> devices, StepOptions options);

  Shard shard() const override { return {0, 1}; }
  NamedTensors Parameters() const override;
  std::vector<at::Tensor> State() const override { return UniqueState(model_); }
  at::Tensor ForwardBackward(const Batch& batch, bool first, bool last) override;
  void Train() override { model_.train(); }
  void Evaluate() override { model_.eval(); }
  at::Tensor Scores(const at::Tensor& images) override;

 private:
  // Through all stages; the result is on the last stage's device.
  at::Tensor Forward(at::Tensor images);

  ImageModel& model_;
  const PipelinePlan plan_;
  const std::vector<at::Device> devices_;
  const StepOptions options_;
  std::vector<std::shared_ptr<StageModule>> stages_;
};

}  // namespace ddprun
