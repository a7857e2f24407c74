// SPDX-License-Identifier: Apache-2.0
#include "worker/train/training/training_parts.h"

#include <torch/utils.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "ddprun/world.h"
#include "worker/library/accelerator/accelerator.h"
#include "worker/library/base/unique_tensors.h"
#include "worker/train/config/config.h"
#include "worker/train/data/dataset.h"
#include "worker/train/export/initial_weights.h"
#include "worker/train/export/model_file.h"
#include "worker/train/kernels/kernels.h"
#include "worker/train/layers/batch_norm.h"
#include "worker/train/layers/loss.h"
#include "worker/train/loader/loader.h"
#include "worker/train/metrics/console.h"
#include "worker/train/models/models.h"
#include "worker/train/parallel/make_strategy.h"
#include "worker/train/parallel/pipeline_plan.h"
#include "worker/train/parallel/precision.h"
#include "worker/train/step/buffer_mirror.h"
#include "worker/train/step/make_training_loop.h"

namespace ddprun {
namespace {

// Images of a batch that the model is calibrated with.
constexpr std::int64_t kCalibrationBatch = 500;

constexpr char kSharedBlocksNote[] =
    "--shared-blocks: one set of batch-norm statistics serves the ten uses of the block and fits "
    "none of them; expect test accuracy tens of points below training accuracy";

// `2 ranks on cpu (gloo); cifar10: 50000 training and 10000 test images of 3x32x32, 10 classes;
// batch 64 per rank, 128 per step; netresdeep: 159594 parameters`
std::string OpeningLine(const Config& config, const Dataset& data, const World& world,
                        const ImageModel& model) {
  std::int64_t parameters = 0;
  for (const at::Tensor& parameter : UniqueParameters(model)) parameters += parameter.numel();
  const SampleShape shape = data.shape();
  const std::int64_t a_step =
      config.batch_size * config.accumulate * DataParallelSize(config, world.size());
  return absl::StrCat(world.size(), world.size() == 1 ? " rank on " : " ranks on ",
                      world.device().str(), " (", world.backend_name(), "); ", config.dataset, ": ",
                      data.train->size(), " training and ", data.test->size(), " test images of ",
                      shape.channels, "x", shape.height, "x", shape.width, ", ", data.classes,
                      " classes; batch ", config.batch_size,
                      config.pipeline > 1 ? " per model, " : " per rank, ", a_step, " per step; ",
                      config.model, ": ", parameters, " parameters");
}

// Shows the model the training images that its initial parameters depend on, if any: the same on
// every rank. Throws DataError.
void CalibrateOnImages(ImageModel& model, const Dataset& data, const Config& config) {
  const std::int64_t count = std::min(model.calibration_images(), data.train->size());
  if (count == 0) return;
  std::vector<std::int64_t> first(static_cast<std::size_t>(count));
  std::iota(first.begin(), first.end(), 0);
  Loader loader(*data.train, std::move(first), kCalibrationBatch,
                {.channels_last = config.channels_last,
                 .threads = config.loader_threads,
                 .damaged = data.damaged.get()});
  while (const auto batch = loader.Next()) {
    if (batch->labels.size(0) > 0) model.Calibrate(batch->images);
  }
}

// Makes the model that is trained, on the world's device and in its final memory format, and prints
// what is about to be trained. Initial weights from a file are rank 0's alone. Throws as
// MakeModel() and LoadInitialWeights() do.
std::shared_ptr<ImageModel> PrepareModel(const Config& config, const Dataset& data, World& world,
                                         Console& console, bool goes_on) {
  if (WholeModelOnGpu(config, world)) LoadAccelerator().UseOwnStream(world.device().index());
  torch::manual_seed(config.seed);
  auto model = MakeModel(config.model, ModelOptionsOf(config, InputOf(data)));
  if (config.pad_channels > 0 && !model->takes_padded_images())
    throw UsageError(
        "--pad-channels is for models that begin with a convolution; leave it out with "
        "--model " +
        config.model);
  if (world.rank() == 0 && !goes_on) {
    console.Line(OpeningLine(config, data, world, *model));
    for (const std::string& note : data.notes) console.Line(note);
    if (!world.device_note().empty()) console.Line(world.device_note());
    if (config.model == "netresdeep" && config.shared_blocks) console.Line(kSharedBlocksNote);
  }
  if (config.init_from.empty() && !goes_on) CalibrateOnImages(*model, data, config);
  // Rank 0's become every rank's.
  if (world.rank() == 0 && !config.init_from.empty() && !goes_on)
    console.Line(LoadInitialWeights(*model, config));
  if (config.channels_last) UseChannelsLast(*model);
  model->to(world.device());
  if (config.amp == Amp::kAuto && world.rank() == 0 && !goes_on)
    console.Line(std::string("--amp auto is ") +
                 (AutocastType(config.amp, world.device()) ? "bf16 on a GPU" : "off on a CPU"));
  return model;
}

StepOptions OptionsOf(const Config& config, const TrainingParts::Membership& membership,
                      const ImageModel& model, MetricSums& sums) {
  const bool is_kept = membership.world.interrupt() != nullptr;
  return {.loss = Losses().Get(config.loss)({.label_smoothing = config.label_smoothing}),
          .autocast = AutocastType(config.amp, membership.world.device()),
          .events = membership.observers,
          .average = {.format = config.compress,
                      .alike = membership.goes_on,
                      .layout = membership.layout,
                      .note_bytes =
                          is_kept ? MetricSums::NoteBytes() + BufferMirror::NoteBytes(model) : 0},
          .on_scores = [&sums](const at::Tensor& scores, const at::Tensor& labels,
                               const at::Tensor& loss) {
            sums.Add(scores, labels, loss, static_cast<double>(labels.size(0)));
          }};
}

}  // namespace

void AgreeOnKernels(World& world, Console& console) {
  if (!world.device().is_cuda() || world.size() == 1) return;
  const bool has_kernels = KernelsFor(world.device()) != nullptr;
  if (world.OnAllRanks(has_kernels)) return;
  if (has_kernels) console.Line("no fused kernels, as another rank's GPU has none");
  UseFusedKernels(false);
}

TrainingParts::TrainingParts(const Config& config, const Dataset& data,
                             const Membership& membership)
    : model(PrepareModel(config, data, membership.world, membership.console, membership.goes_on)),
      scaler(MakeGradScaler(config, membership.world.device())),
      config_(config),
      data_(data),
      world_(&membership.world),
      console_(&membership.console),
      observers_(&membership.observers) {
  MakeStrategy(membership);
  parameters = strategy->Parameters();
  MakeOptimizer();
  if (config.ema_decay > 0) average.emplace(parameters, config.ema_decay);
}

void TrainingParts::Leave() {
  strategy.reset();
  // They lie in memory of the strategy's.
  for (auto& [name, parameter] : parameters) at::Tensor(parameter).mutable_grad().reset();
  world_ = nullptr;
  console_ = nullptr;
  observers_ = nullptr;
}

void TrainingParts::Join(const Membership& membership) {
  world_ = &membership.world;
  console_ = &membership.console;
  observers_ = &membership.observers;
  MakeStrategy(membership);
  MakeOptimizer();
}

void TrainingParts::MakeStrategy(const Membership& membership) {
  if (config_.sync_batch_norm) {
    World& world = membership.world;
    SumOverRanks sum;
    if (DataParallelSize(config_, world.size()) > 1)
      sum = [&world](at::Tensor& values) { world.AllReduceSum(values); };
    SynchronizeBatchNorm(*model, sum);
  }
  strategy = MakeParallelStrategy(config_, data_, *world_, *model, *console_,
                                  OptionsOf(config_, membership, *model, epoch_sums));
}

// Another number of ranks changes lengths and rates that are set in other units than steps.
void TrainingParts::MakeOptimizer() {
  const int ranks = strategy->shard().world_size;
  const StepSize size{
      .steps_per_epoch = MakeTrainingPlan(config_, data_.train->size(), ranks).steps_per_epoch,
      .images = config_.batch_size * config_.accumulate * ranks};
  if (optimizer && size == step_size_) return;
  NamedTensors before;
  if (optimizer) before = optimizer->State();
  casts.reset();
  optimizer = ddprun::MakeOptimizer(config_, parameters, size);
  step_size_ = size;
  const NamedTensors state = optimizer->State();
  for (std::size_t i = 0; i < before.size(); ++i)
    at::Tensor(state[i].second).copy_(before[i].second);
  if (const auto type = AutocastType(config_.amp, world_->device()))
    casts.emplace(parameters, world_->device(), *type, *optimizer, /*gather=*/world_->size() == 1);
}

std::unique_ptr<TrainingLoop> TrainingParts::MakeLoop(GraphSteps& graph_steps) {
  return MakeTrainingLoop(config_,
                          {.world = *world_,
                           .strategy = *strategy,
                           .optimizer = *optimizer,
                           .scaler = scaler,
                           .average = average ? &*average : nullptr,
                           .casts = casts ? &*casts : nullptr,
                           .observers = *observers_},
                          data_, graph_steps, *console_);
}

}  // namespace ddprun
