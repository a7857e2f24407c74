// SPDX-License-Identifier: Apache-2.0
#include "worker/step/make_train_step.h"

#include <optional>
#include <string>
#include <utility>

#include "worker/accelerator/accelerator.h"
#include "worker/kernels/kernels.h"
#include "worker/parallel/pipeline_plan.h"

namespace ddprun {
namespace {

// Empty if a graph can be captured of the step.
std::string WhyNoGraph(const Config& config, const World& world) {
  if (!config.cuda_graph) return "--no-cuda-graph";
  if (world.size() == 1) return "";
  if (!world.is_nccl()) return "Gloo's all-reduce goes through the host";
  if (config.compress != GradientFormat::kFull) return "--compress is done by the host";
  // The fused kernels alone normalise over ranks without a number that the host reads.
  if (config.sync_batch_norm && (!config.channels_last || KernelsFor(world.device()) == nullptr))
    return "--sync-batch-norm without fused kernels";
  return "";
}

std::unique_ptr<BatchFeed> MakeFeed(const StepParts& parts, const Dataset& data, bool resident) {
  if (!resident) return std::make_unique<LoaderFeed>(parts.config, data, parts.world);
  return std::make_unique<GpuFeed>(parts.config, dynamic_cast<const FixedSizeImages&>(*data.train),
                                   parts.world.device(), parts.strategy.image_type());
}

}  // namespace

bool WholeModelOnGpu(const Config& config, const World& world) {
  return world.device().is_cuda() && MakePipelinePlan(config, world.size()).stages == 1;
}

std::unique_ptr<TrainStep> MakeTrainStep(StepParts parts, const Dataset& data,
                                         GraphSteps& graph_steps,
                                         const std::function<void(const std::string&)>& report) {
  if (!WholeModelOnGpu(parts.config, parts.world)) {
    std::unique_ptr<BatchFeed> feed = MakeFeed(parts, data, /*resident=*/false);
    return std::make_unique<TrainStep>(std::move(parts), std::move(feed));
  }
  Accelerator& accelerator = LoadAccelerator();
  const at::Device device = parts.world.device();
  const bool resident =
      parts.config.device_data &&
      GpuFeed::Fits(parts.config, *data.train, accelerator.FreeBytes(device.index()));
  const std::string why_not = WhyNoGraph(parts.config, parts.world);
  report(std::string("training images ") + (resident ? "lie on the GPU" : "come from the host") +
         "; the step is " + (why_not.empty() ? "one CUDA graph" : "no CUDA graph: " + why_not));
  std::unique_ptr<BatchFeed> feed = MakeFeed(parts, data, resident);
  MakeStepGraph make_graph;
  if (why_not.empty()) make_graph = accelerator.GraphMaker();
  // NCCL's watchdog does not see the all-reduce that a graph replays; and a rank that is kept must
  // know which steps are complete. Nothing undoes or hangs the steps of a rank that is alone.
  const bool kept = parts.world.interrupt() != nullptr;
  std::optional<RunAheadLimit> limit;
  if (parts.world.size() > 1 && (kept || make_graph)) {
    RunAheadLimit::Options options{.who = "rank " + std::to_string(parts.world.rank())};
    if (kept) {
      options.steps_ahead = RunAheadLimit::kStepsAheadIfKept;
      options.check = [&world = parts.world] { world.CheckRound(); };
    }
    limit.emplace([&accelerator] { return accelerator.MakeMark(); }, graph_steps,
                  std::move(options));
  }
  return std::make_unique<TrainStep>(std::move(parts), std::move(feed), std::move(make_graph),
                                     std::move(limit));
}

}  // namespace ddprun
