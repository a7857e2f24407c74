// SPDX-License-Identifier: Apache-2.0
#include "worker/train/parallel/make_strategy.h"

#include "worker/library/accelerator/accelerator.h"
#include "worker/train/parallel/data_parallel.h"
#include "worker/train/parallel/local_pipeline.h"
#include "worker/train/parallel/pipeline_parallel.h"
#include "worker/train/parallel/pipeline_plan.h"

namespace ddprun {
namespace {

// One for each stage: this process's GPUs in turn, from the world's on; on a CPU there is one.
std::vector<at::Device> DevicesOf(const World& world, int stages) {
  std::vector<at::Device> devices(static_cast<std::size_t>(stages), world.device());
  if (!world.device().is_cuda()) return devices;
  const int count = LoadAccelerator().DeviceCount();
  for (std::size_t i = 0; i < devices.size(); ++i) {
    const int index = (world.device().index() + static_cast<int>(i)) % count;
    devices[i] = at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(index));
  }
  return devices;
}

}  // namespace

std::unique_ptr<ParallelStrategy> MakeParallelStrategy(const Config& config, const Dataset& data,
                                                       World& world, ImageModel& model,
                                                       Console& console, StepOptions options) {
  const PipelinePlan plan = MakePipelinePlan(config, world.size());
  if (plan.stages == 1) return std::make_unique<DataParallel>(world, model, std::move(options));
  if (world.size() > 1 && world.device().is_cuda() && world.backend_name() == "gloo") {
    throw UsageError(
        "--pipeline over several ranks on GPUs needs NCCL, as Gloo cannot send from a GPU; use "
        "--device cpu, or --backend nccl with a GPU for each rank");
  }
  const SampleShape shape = data.shape();
  const auto cuts =
      ChooseCuts(config, plan, world, model, {shape.channels, shape.height, shape.width});
  if (world.rank() == 0) console.Line(DescribeStages(model, cuts));
  if (world.size() > 1)
    return std::make_unique<PipelineParallel>(world, model, plan, cuts, std::move(options));
  return std::make_unique<LocalPipeline>(model, plan, cuts, DevicesOf(world, plan.stages),
                                         std::move(options));
}

}  // namespace ddprun
