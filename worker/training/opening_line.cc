// SPDX-License-Identifier: Apache-2.0
#include "worker/training/opening_line.h"

#include "worker/base/unique_tensors.h"
#include "worker/parallel/pipeline_plan.h"

namespace ddprun {
namespace {

std::string Text(std::int64_t number) { return std::to_string(number); }

}  // namespace

std::string OpeningLine(const Config& config, const Dataset& data, const World& world,
                        const ImageModel& model) {
  std::int64_t parameters = 0;
  for (const at::Tensor& parameter : UniqueParameters(model)) parameters += parameter.numel();
  const SampleShape shape = data.shape();
  const std::int64_t a_step =
      config.batch_size * config.accumulate * DataParallelSize(config, world.size());
  return Text(world.size()) + (world.size() == 1 ? " rank on " : " ranks on ") +
         world.device().str() + " (" + world.backend_name() + "); " + config.dataset + ": " +
         Text(data.train->size()) + " training and " + Text(data.test->size()) +
         " test images of " + Text(shape.channels) + "x" + Text(shape.height) + "x" +
         Text(shape.width) + ", " + Text(data.classes) + " classes; batch " +
         Text(config.batch_size) + (config.pipeline > 1 ? " per model, " : " per rank, ") +
         Text(a_step) + " per step; " + config.model + ": " + Text(parameters) + " parameters";
}

}  // namespace ddprun
