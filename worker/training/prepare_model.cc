// SPDX-License-Identifier: Apache-2.0
#include "worker/training/prepare_model.h"

#include <torch/utils.h>

#include <string>

#include "worker/distributed/accelerator.h"
#include "worker/evaluation/calibrate.h"
#include "worker/export/initial_weights.h"
#include "worker/layers/batch_norm.h"
#include "worker/parallel/pipeline_plan.h"
#include "worker/parallel/precision.h"
#include "worker/step/make_train_step.h"
#include "worker/training/opening_line.h"

namespace ddprun {
namespace {

constexpr char kSharedBlocksNote[] =
    "--shared-blocks: one set of batch-norm statistics serves the ten uses of the block and fits "
    "none of them; expect test accuracy tens of points below training accuracy";

}  // namespace

std::shared_ptr<ImageModel> PrepareModel(const Config& config, const Dataset& data, World& world,
                                         Console& console) {
  if (WholeModelOnGpu(config, world)) LoadAccelerator().UseOwnStream(world.device().index());
  torch::manual_seed(config.seed);
  auto model = MakeModel(config.model, {.in_channels = data.shape().channels,
                                        .height = data.shape().height,
                                        .width = data.shape().width,
                                        .classes = data.classes,
                                        .shared_blocks = config.shared_blocks,
                                        .stem = config.stem,
                                        .widening = config.width,
                                        .whiten_epochs = config.whiten_epochs,
                                        .model_file = config.model_file});
  if (world.rank() == 0) {
    console.Line(OpeningLine(config, data, world, *model));
    if (config.model == "netresdeep" && config.shared_blocks) console.Line(kSharedBlocksNote);
  }
  if (world.env().local_rank == 0 && !world.device_note().empty())
    console.Line(world.device_note());
  if (config.init_from.empty()) CalibrateOnImages(*model, *data.train, config);
  // Rank 0's become every rank's.
  if (world.rank() == 0 && !config.init_from.empty())
    console.Line(LoadInitialWeights(*model, config));
  if (config.sync_batch_norm && DataParallelSize(config, world.size()) > 1)
    SynchronizeBatchNorm(*model, [&world](at::Tensor& values) { world.AllReduceSum(values); });
  if (config.channels_last) UseChannelsLast(*model);
  model->to(world.device());
  if (config.amp == Amp::kAuto && world.rank() == 0)
    console.Line(std::string("--amp auto is ") +
                 (AutocastType(config.amp, world.device()) ? "bf16 on a GPU" : "off on a CPU"));
  return model;
}

}  // namespace ddprun
