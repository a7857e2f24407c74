// SPDX-License-Identifier: Apache-2.0
// Pipeline parallelism: every rank has one stage of the model. S consecutive ranks share a model,
// and the ranks that have the same stage of all models average their gradients.
//
// Rank r has stage r % S of model r / S, so that a model spans as few nodes as possible: its stages
// wait for each other with every micro-batch, whereas gradients are averaged once a step, while
// backward still runs.
#pragma once

#include <memory>
#include <optional>

#include "ddprun/distributed_data_parallel.h"
#include "ddprun/world.h"
#include "worker/train/parallel/parallel_strategy.h"
#include "worker/train/parallel/pipeline_plan.h"
#include "worker/train/pipeline/rank_link.h"
#include "worker/train/pipeline/stage.h"
#include "worker/train/pipeline/stage_module.h"

namespace ddprun {

class PipelineParallel : public ParallelStrategy {
 public:
  // The model, which becomes rank 0's on all ranks, is on the world's device and in its final
  // memory format. What other ranks' stages need of it is let go of. All must outlive the strategy.
  PipelineParallel(World& world, ImageModel& model, const PipelinePlan& plan,
                   const std::vector<std::size_t>& cuts, StepOptions options);

  Shard shard() const override { return {replicas_.rank(), replicas_.size()}; }
  NamedTensors Parameters() const override { return module_->own_parameters(); }
  std::vector<at::Tensor> State() const override;
  at::Tensor ForwardBackward(const Batch& batch, bool first, bool last) override;
  void SumOverModel(at::Tensor value) override;
  void Train() override { module_->train(); }
  void Evaluate() override;
  at::Tensor Scores(const at::Tensor& images) override;
  bool HasScores() const override { return stage_.is_last(); }
  NamedTensors Gather(const NamedTensors& own) override;
  void GatherModel() override;

 private:
  Stage MakeStage(const PipelinePlan& plan);
  void ZeroGrad();
  // The last stage's, for all ranks that share the model.
  void ShareLoss(at::Tensor& loss);

  World& world_;
  ImageModel& model_;
  const StepOptions options_;
  World& pipeline_;  // the ranks that share a model, by stage
  World& replicas_;  // the ranks that have this stage
  std::shared_ptr<StageModule> module_;
  std::unique_ptr<RankLink> previous_;
  std::unique_ptr<RankLink> next_;
  std::optional<DistributedDataParallel> ddp_;  // where there are other replicas
  Stage stage_;
};

}  // namespace ddprun
