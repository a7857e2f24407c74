// SPDX-License-Identifier: Apache-2.0
#include "worker/step/make_step.h"

#include <optional>
#include <string>
#include <utility>

#include "worker/distributed/accelerator.h"
#include "worker/parallel/pipeline_plan.h"
#include "worker/step/device_step.h"
#include "worker/step/host_step.h"
#include "worker/step/run_ahead_limit.h"

namespace ddprun {
namespace {

// Empty if a graph can be captured of the step.
std::string WhyNoGraph(const Config& config, const World& world) {
  if (!config.cuda_graph) return "--no-cuda-graph";
  if (world.size() == 1) return "";
  if (world.backend_name() != "nccl") return "Gloo's all-reduce goes through the host";
  if (config.compress != "off") return "--compress is done by the host";
  if (config.sync_batch_norm) return "--sync-batch-norm";
  return "";
}

std::unique_ptr<BatchFeed> MakeFeed(const StepParts& parts, bool resident) {
  const SampleSet& set = *parts.data.train;
  if (!resident) return std::make_unique<LoaderFeed>(parts.config, set, parts.world);
  return std::make_unique<GpuFeed>(parts.config, dynamic_cast<const FixedSizeImages&>(set),
                                   parts.world.device());
}

// NCCL's watchdog does not see the all-reduce that a graph replays. What waits in a kernel for a
// rank that does not come ends when the communicator is aborted.
RunAheadLimit MakeRunAheadLimit(World& world) {
  return {[] { return LoadAccelerator().MakeMark(); }, world.step_timeout(),
          [&world] { world.group()->getDefaultBackend()->abort(); },
          "rank " + std::to_string(world.rank())};
}

}  // namespace

bool IsDeviceStep(const Config& config, const World& world) {
  return world.device().is_cuda() && MakePipelinePlan(config, world.size()).stages == 1;
}

std::unique_ptr<TrainingStep> MakeTrainingStep(
    StepParts parts, const std::function<void(const std::string&)>& report) {
  if (!IsDeviceStep(parts.config, parts.world)) return std::make_unique<HostStep>(std::move(parts));
  Accelerator& accelerator = LoadAccelerator();
  const at::Device device = parts.world.device();
  const bool resident =
      parts.config.device_data &&
      GpuFeed::Fits(parts.config, *parts.data.train, accelerator.FreeBytes(device.index()));
  const std::string why_not = WhyNoGraph(parts.config, parts.world);
  report(std::string("training images ") + (resident ? "lie on the GPU" : "come from the host") +
         "; the step is " + (why_not.empty() ? "one CUDA graph" : "no CUDA graph: " + why_not));
  std::unique_ptr<BatchFeed> feed = MakeFeed(parts, resident);
  DeviceStep::MakeGraph make_graph;
  if (why_not.empty()) make_graph = [&accelerator] { return accelerator.MakeGraph(); };
  std::optional<RunAheadLimit> run_ahead_limit;
  if (make_graph && parts.world.size() > 1) run_ahead_limit.emplace(MakeRunAheadLimit(parts.world));
  return std::make_unique<DeviceStep>(std::move(parts), std::move(feed), std::move(make_graph),
                                      std::move(run_ahead_limit));
}

}  // namespace ddprun
