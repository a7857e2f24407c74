// SPDX-License-Identifier: Apache-2.0
// Data parallelism: every rank has the whole model.
#pragma once

#include <memory>

#include "ddprun/distributed_data_parallel.h"
#include "ddprun/world.h"
#include "worker/train/models/models.h"
#include "worker/train/parallel/parallel_strategy.h"

namespace ddprun {

class DataParallel : public ParallelStrategy {
 public:
  // The model, which becomes rank 0's on all ranks, is on the world's device and in its final
  // memory format. All must outlive the strategy.
  DataParallel(World& world, ImageModel& model, StepOptions options);

  Shard shard() const override { return {world_.rank(), world_.size()}; }
  at::ScalarType image_type() const override;
  NamedTensors Parameters() const override;
  std::vector<at::Tensor> State() const override;
  at::Tensor ForwardBackward(const Batch& batch, bool first, bool last) override;
  BucketLayout Layout() const override { return ddp_.Layout(); }
  void UseLayout(const BucketLayout& layout) override { ddp_.UseLayout(layout); }
  ShmNotes* notes() override { return ddp_.notes(); }
  GradientTraffic traffic() const override { return ddp_.traffic(); }
  void Train() override;
  void Evaluate() override;
  at::Tensor Scores(const at::Tensor& images) override;

 private:
  World& world_;
  ImageModel& model_;
  const StepOptions options_;
  DistributedDataParallel ddp_;
};

}  // namespace ddprun
