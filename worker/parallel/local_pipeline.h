// SPDX-License-Identifier: Apache-2.0
// All stages of the model in this process, each in its own thread: on its own device if there are
// several, else sharing the cores.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <vector>

#include "worker/parallel/parallel_strategy.h"
#include "worker/parallel/pipeline_plan.h"
#include "worker/pipeline/stage.h"
#include "worker/pipeline/stage_module.h"
#include "worker/pipeline/thread_link.h"

namespace ddprun {

class StageThread;

class LocalPipeline : public ParallelStrategy {
 public:
  // `devices` has one for each stage; the first is where images come from. `timeout` ends what a
  // stage waits for its neighbour. All must outlive the strategy.
  LocalPipeline(ImageModel& model, const PipelinePlan& plan, const std::vector<std::size_t>& cuts,
                const std::vector<at::Device>& devices, std::chrono::milliseconds timeout,
                StepOptions options);
  ~LocalPipeline() override;

  Shard shard() const override { return {0, 1}; }
  NamedTensors Parameters() const override;
  std::vector<at::Tensor> State() const override;
  at::Tensor Run(const Batch& batch, bool first, bool last) override;
  void SumOverModel(at::Tensor) override {}
  void Train() override { model_.train(); }
  void Evaluate() override { model_.eval(); }
  at::Tensor Scores(const at::Tensor& images) override;
  bool HasScores() const override { return true; }
  NamedTensors Gather(const NamedTensors& own) override { return own; }
  void GatherModel() override {}

 private:
  // A stage and what it needs.
  struct Place {
    std::shared_ptr<StageModule> module;
    std::unique_ptr<ThreadLink> previous;
    std::unique_ptr<ThreadLink> next;
    std::unique_ptr<Stage> stage;
    std::unique_ptr<StageThread> thread;  // none for the first, which runs in the caller's
  };

  void MakeLinks(const std::vector<at::Device>& devices, std::chrono::milliseconds timeout);
  // Runs `work` for every stage at once and waits for all; gives the last stage's answer. Rethrows
  // what went wrong first.
  at::Tensor InAllStages(const std::function<at::Tensor(Stage&)>& work);

  ImageModel& model_;
  const StepOptions options_;
  const at::Device last_device_;
  const int threads_before_;  // that the caller's operators used
  std::vector<Place> places_;
};

}  // namespace ddprun
