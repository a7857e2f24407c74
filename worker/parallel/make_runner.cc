// SPDX-License-Identifier: Apache-2.0
#include "worker/parallel/make_runner.h"

#include <chrono>

#include "worker/distributed/accelerator.h"
#include "worker/parallel/data_parallel_runner.h"
#include "worker/parallel/local_pipeline_runner.h"
#include "worker/parallel/pipeline_plan.h"
#include "worker/parallel/rank_pipeline_runner.h"

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

std::unique_ptr<StepRunner> MakeStepRunner(const Config& config, const Dataset& data, World& world,
                                           ImageModel& model, Reporter& reporter,
                                           StepOptions options) {
  const PipelinePlan plan = MakePipelinePlan(config, world.size());
  if (plan.stages == 1)
    return std::make_unique<DataParallelRunner>(world, model, std::move(options));
  if (world.size() > 1 && world.device().is_cuda() && world.backend_name() == "gloo") {
    throw UsageError(
        "--pipeline over several ranks on GPUs needs NCCL, as Gloo cannot send from a GPU; use "
        "--device cpu, or --backend nccl with a GPU for each rank");
  }
  const SampleShape shape = data.shape();
  const auto cuts =
      ChooseCuts(config, plan, world, model, {shape.channels, shape.height, shape.width});
  if (world.rank() == 0) reporter.Line(DescribeStages(model, cuts));
  if (world.size() > 1)
    return std::make_unique<RankPipelineRunner>(world, model, plan, cuts, std::move(options));
  const auto timeout = std::chrono::milliseconds(static_cast<std::int64_t>(config.timeout * 1000));
  return std::make_unique<LocalPipelineRunner>(model, plan, cuts, DevicesOf(world, plan.stages),
                                               timeout, std::move(options));
}

}  // namespace ddprun
