// SPDX-License-Identifier: Apache-2.0
#include "worker/train/parallel/pipeline_plan.h"

#include <ATen/Functions.h>

#include <algorithm>

#include "worker/train/pipeline/part_costs.h"

namespace ddprun {
namespace {

constexpr std::uint64_t kSampleSeed = 0;  // of the images that the parts are measured with

at::Tensor SampleImages(const Config& config, const PipelinePlan& plan, const World& world,
                        const std::vector<std::int64_t>& image_sizes) {
  std::vector<std::int64_t> sizes{MicroBatchSizes(config.batch_size, plan.micro_batches)[0]};
  sizes.insert(sizes.end(), image_sizes.begin(), image_sizes.end());
  const auto generator = at::detail::createCPUGenerator(kSampleSeed);
  const at::Tensor images = at::rand(sizes, generator, at::TensorOptions());
  const bool by_pixel = config.channels_last && images.dim() == 4;
  return images.contiguous(by_pixel ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous)
      .to(world.device());
}

}  // namespace

PipelinePlan MakePipelinePlan(const Config& config, int world_size) {
  const auto stages = config.pipeline;
  if (world_size > 1 && world_size % stages != 0) {
    throw UsageError("--pipeline " + std::to_string(stages) +
                     " needs a number of ranks that is a multiple of it, or one alone, but there "
                     "are " +
                     std::to_string(world_size) + "; start " +
                     std::to_string((world_size / stages + 1) * stages) +
                     " ranks, or choose --pipeline " + std::to_string(world_size));
  }
  if (config.micro_batches > config.batch_size) {
    throw UsageError("--micro-batches " + std::to_string(config.micro_batches) +
                     " cannot share a batch of " + std::to_string(config.batch_size) +
                     "; choose at most so many, or a greater --batch-size");
  }
  if (config.sync_batch_norm && stages > 1 && world_size > stages) {
    throw UsageError(
        "--sync-batch-norm cannot be had with --pipeline and data parallelism on top, as a stage's "
        "statistics are those of its micro-batches; leave out one of the two");
  }
  const std::int64_t standard =
      stages == 1 ? 1 : std::min(config.batch_size, kMicroBatchesPerStage * stages);
  return {
      .stages = static_cast<int>(stages),
      .micro_batches = static_cast<int>(config.micro_batches > 0 ? config.micro_batches : standard),
      .schedule = config.pipeline_schedule};
}

int DataParallelSize(const Config& config, int world_size) {
  return world_size == 1 ? 1 : world_size / MakePipelinePlan(config, world_size).stages;
}

std::vector<std::size_t> ChooseCuts(const Config& config, const PipelinePlan& plan, World& world,
                                    ImageModel& model,
                                    const std::vector<std::int64_t>& image_sizes) {
  const std::size_t parts = model.Parts().size();
  const auto stages = static_cast<std::size_t>(plan.stages);
  if (stages > parts) {
    throw UsageError("--pipeline " + std::to_string(stages) + " is more than the " +
                     std::to_string(parts) + " parts that --model " + config.model +
                     " can be cut into; choose at most --pipeline " + std::to_string(parts) +
                     (config.model == "netresdeep" && config.shared_blocks
                          ? ", or leave out --shared-blocks, which makes all blocks one part"
                          : ""));
  }
  std::vector<double> costs(parts);
  if (world.rank() == 0) {
    const at::Tensor images = SampleImages(config, plan, world, image_sizes);
    costs = config.deterministic ? EstimatedCosts(model, images)
                                 : MeasuredCosts(model, images, [&world] { world.Synchronize(); });
  }
  at::Tensor shared = at::tensor(costs, at::kDouble).to(world.device());
  world.Broadcast(shared, 0);
  shared = shared.cpu();
  costs.assign(shared.const_data_ptr<double>(), shared.const_data_ptr<double>() + parts);
  return BalancedCuts(costs, stages);
}

std::string DescribeStages(ImageModel& model, const std::vector<std::size_t>& cuts) {
  const std::vector<ModelPart> parts = model.Parts();
  std::string text;
  for (std::size_t s = 0; s < cuts.size(); ++s) {
    text += (s > 0 ? "; stage " : "stage ") + std::to_string(s) + ": ";
    const std::size_t end = s + 1 < cuts.size() ? cuts[s + 1] : parts.size();
    for (std::size_t i = cuts[s]; i < end; ++i) text += (i > cuts[s] ? ", " : "") + parts[i].name;
  }
  return text;
}

}  // namespace ddprun
