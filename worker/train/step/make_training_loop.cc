// SPDX-License-Identifier: Apache-2.0
#include "worker/train/step/make_training_loop.h"

#include <optional>
#include <string>
#include <utility>

#include "worker/library/accelerator/accelerator.h"
#include "worker/train/kernels/kernels.h"
#include "worker/train/parallel/pipeline_plan.h"

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

std::unique_ptr<BatchFeed> MakeFeed(const Config& config, const LoopParts& parts,
                                    const Dataset& data, bool resident) {
  if (!resident) return std::make_unique<LoaderFeed>(config, data, parts.world);
  return std::make_unique<GpuFeed>(config, dynamic_cast<const FixedSizeImages&>(*data.train),
                                   parts.world.device(), parts.strategy.image_type());
}

// For a GPU. `records`: the step becomes a CUDA graph.
std::unique_ptr<StepRecorder> MakeRecorder(World& world, GraphSteps& graph_steps, bool records) {
  Accelerator& accelerator = LoadAccelerator();
  MakeStepGraph make_graph;
  if (records) make_graph = accelerator.GraphMaker();
  // NCCL's watchdog does not see the all-reduce that a graph replays; and a rank that is kept must
  // know which steps are complete. Nothing undoes or hangs the steps of a rank that is alone.
  const bool kept = world.interrupt() != nullptr;
  std::optional<RunAheadLimit> limit;
  if (world.size() > 1 && (kept || make_graph)) {
    RunAheadLimit::Options options{.who = "rank " + std::to_string(world.rank())};
    if (kept) {
      options.steps_ahead = RunAheadLimit::kStepsAheadIfKept;
      options.check = [&world] { world.CheckRound(); };
    }
    limit.emplace([&accelerator] { return accelerator.MakeMark(); }, graph_steps,
                  std::move(options));
  }
  return std::make_unique<StepRecorder>(world, std::move(make_graph), std::move(limit));
}

}  // namespace

bool WholeModelOnGpu(const Config& config, const World& world) {
  return world.device().is_cuda() && MakePipelinePlan(config, world.size()).stages == 1;
}

std::unique_ptr<TrainingLoop> MakeTrainingLoop(const Config& config, const LoopParts& parts,
                                               const Dataset& data, GraphSteps& graph_steps,
                                               Console& console) {
  World& world = parts.world;
  if (!WholeModelOnGpu(config, world))
    return std::make_unique<TrainingLoop>(config, parts,
                                          MakeFeed(config, parts, data, /*resident=*/false),
                                          std::make_unique<StepRecorder>(world));
  const bool resident =
      config.device_data &&
      GpuFeed::Fits(config, *data.train, LoadAccelerator().FreeBytes(world.device().index()));
  const std::string why_not = WhyNoGraph(config, world);
  if (world.rank() == 0)
    console.Line(std::string("training images ") +
                 (resident ? "lie on the GPU" : "come from the host") + "; the step is " +
                 (why_not.empty() ? "one CUDA graph" : "no CUDA graph: " + why_not));
  auto feed = MakeFeed(config, parts, data, resident);
  return std::make_unique<TrainingLoop>(config, parts, std::move(feed),
                                        MakeRecorder(world, graph_steps, why_not.empty()));
}

}  // namespace ddprun
