// SPDX-License-Identifier: Apache-2.0
#include "worker/trainer.h"

#include <torch/nn/functional/loss.h>
#include <torch/utils.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <utility>

#include "worker/checksum.h"
#include "worker/sampler.h"
#include "worker/state_dict.h"
#include "worker/unique_tensors.h"

namespace ddprun {
namespace {

// What a person sees as "now", and long enough for a few steps.
constexpr std::chrono::seconds kRateInterval{1};

std::string Fixed(double value, int digits) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}

std::shared_ptr<ImageModel> PrepareModel(const Config& config, const Dataset& data,
                                         const World& world, bool channels_last) {
  torch::manual_seed(config.seed);
  auto model = MakeModel(config.model, {.in_channels = data.channels,
                                        .classes = data.classes,
                                        .shared_blocks = config.shared_blocks});
  if (channels_last) UseChannelsLast(*model);
  model->to(world.device());
  return model;
}

torch::optim::SGDOptions OptimizerOptions(const Config& config) {
  return torch::optim::SGDOptions(config.lr)
      .momentum(config.momentum)
      .weight_decay(config.weight_decay)
      .nesterov(config.nesterov);
}

}  // namespace

Length TrainingLength(const Config& config, std::int64_t train_images, int world_size) {
  const std::int64_t per_rank = (train_images + world_size - 1) / world_size;
  Length length;
  length.steps_per_epoch = (per_rank + config.batch_size - 1) / config.batch_size;
  length.steps = std::max<std::int64_t>(
      1, std::llround(config.epochs * static_cast<double>(length.steps_per_epoch)));
  if (config.max_steps) length.steps = std::min(length.steps, *config.max_steps);
  length.epochs = (length.steps + length.steps_per_epoch - 1) / length.steps_per_epoch;
  return length;
}

Schedule MakeSchedule(const Config& config, const Length& length) {
  const std::int64_t from_epochs =
      std::llround(config.warmup_epochs * static_cast<double>(length.steps_per_epoch));
  return {.peak_rate = config.lr,
          .warmup_steps = std::min(config.warmup_steps.value_or(from_epochs), length.steps),
          .total_steps = length.steps};
}

void PrepareOutputDirectory(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error)
    throw UsageError("--output-dir " + path + " cannot be made: " + error.message() +
                     "; choose another folder");
  if (access(path.c_str(), W_OK | X_OK) != 0) {
    throw UsageError("--output-dir " + path +
                     " cannot be written to; change its permissions or choose another folder");
  }
}

Trainer::Trainer(const Config& config, const Dataset& data, World& world, Reporter& reporter,
                 ProgressSender& progress, Time program_start)
    : config_(config),
      data_(data),
      world_(world),
      reporter_(reporter),
      progress_(progress),
      program_start_(program_start),
      channels_last_(true),
      length_(TrainingLength(config, data.train.size(), world.size())),
      schedule_(MakeSchedule(config, length_)),
      writer_(data.train, data.channels, data.mean, data.std),
      model_(PrepareModel(config, data, world, channels_last_)),
      ddp_(std::make_unique<DistributedDataParallel>(world, *model_,
                                                     DistributedDataParallel::Options{})),
      optimizer_(std::make_unique<torch::optim::SGD>(UniqueParameters(*model_),
                                                     OptimizerOptions(config))) {}

void Trainer::Run() {
  model_->train();
  Enter("barrier");
  world_.Barrier();
  training_start_ = line_time_ = rate_time_ = std::chrono::steady_clock::now();
  for (std::int64_t epoch = 0; epoch < length_.epochs; ++epoch) TrainEpoch(epoch);
  world_.Synchronize();
  training_time_ = std::chrono::steady_clock::now() - training_start_;

  Enter("broadcast");
  BroadcastBuffers(world_, *model_);
  CheckRanksAgree();
  Evaluation evaluation;
  if (config_.eval) {
    Enter("evaluate");
    evaluation = Evaluate(world_, *model_, data_,
                          {.batch_size = config_.eval_batch_size, .channels_last = channels_last_});
  }
  if (world_.rank() != 0) return;
  Enter("checkpoint");
  const std::string model_file = std::filesystem::path(config_.output_dir) / kModelFileName;
  SaveStateDict(*model_, model_file);
  ShowTable(evaluation, model_file);
}

void Trainer::TrainEpoch(std::int64_t epoch) {
  const auto rank = static_cast<std::uint64_t>(world_.rank());
  const auto epoch_number = static_cast<std::uint64_t>(epoch);
  auto indices = TrainingIndices(data_.train.size(), {world_.rank(), world_.size()}, config_.seed,
                                 epoch_number);
  Loader loader(writer_, data_.train.labels, std::move(indices),
                {.batch_size = config_.batch_size,
                 .augment = config_.augment,
                 .channels_last = channels_last_,
                 .pinned = world_.device().is_cuda(),
                 .seed = config_.seed,
                 .epoch = epoch_number,
                 .rank = rank});
  const std::int64_t batches = std::min(length_.steps_per_epoch, length_.steps - step_);
  for (std::int64_t i = 1; i <= batches; ++i) {
    TellStep(epoch + 1);
    const auto batch = loader.Next();
    TORCH_INTERNAL_ASSERT(
        batch.has_value());  // steps_per_epoch is the loader's own number of batches
    const at::Tensor loss = Step(*batch);
    ++step_;
    images_ += batch->labels.size(0);
    Report(epoch + 1, i, batches, loss);
  }
}

at::Tensor Trainer::Step(const Batch& batch) {
  for (auto& group : optimizer_->param_groups()) group.options().set_lr(schedule_.RateAt(step_));
  const at::Tensor images = batch.images.to(world_.device(), /*non_blocking=*/true);
  const at::Tensor labels = batch.labels.to(world_.device(), /*non_blocking=*/true);
  Enter("forward");
  ddp_->ZeroGrad();
  const at::Tensor scores = ddp_->Forward([&] { return model_->forward(images); });
  at::Tensor loss = at::cross_entropy_loss(scores, labels);
  Enter("backward, all_reduce");
  loss.backward();
  Enter("optimizer");
  optimizer_->step();
  return loss.detach();
}

void Trainer::Enter(const char* section) {
  ProgressMessage message;
  message.section = section;
  progress_.Say(message);
}

void Trainer::TellStep(std::int64_t epoch) {
  ProgressMessage message;
  message.step = step_ + 1;
  message.epoch = epoch;
  message.section = "data";
  const auto now = std::chrono::steady_clock::now();
  if (now - rate_time_ >= kRateInterval) {
    const std::chrono::duration<double> passed = now - rate_time_;
    message.rate = static_cast<double>(images_ - rate_images_) / passed.count();
    message.unit = "images";
    rate_time_ = now;
    rate_images_ = images_;
  }
  progress_.Say(message);
}

void Trainer::Report(std::int64_t epoch, std::int64_t batch, std::int64_t batches,
                     const at::Tensor& loss) {
  const bool line_due = batch % config_.log_every == 0 || batch == batches;
  // To ask a GPU for a number means to wait for it, so there the loss is looked at when a line
  // shows it.
  if (line_due || loss.is_cpu()) {
    line_loss_ = loss.item<double>();
    CheckFinite(line_loss_, epoch, batch);
  }
  const auto now = std::chrono::steady_clock::now();
  if (line_due) {
    const std::chrono::duration<double> passed = now - line_time_;
    const double speed = static_cast<double>(images_ - line_images_) / passed.count();
    reporter_.Line(ToLine({.epoch = epoch,
                           .epochs = length_.epochs,
                           .batch = batch,
                           .batches = batches,
                           .loss = line_loss_,
                           .learning_rate = schedule_.RateAt(step_ - 1),
                           .images_per_second = speed}));
    line_time_ = now;
    line_images_ = images_;
  }
  if (reporter_.BarIsDue(now) && step_ < length_.steps) {
    const std::chrono::duration<double> passed = now - training_start_;
    const double speed = static_cast<double>(images_ * world_.size()) / passed.count();
    const auto left =
        passed * (static_cast<double>(length_.steps - step_) / static_cast<double>(step_));
    reporter_.Bar(ToBar(step_, length_.steps, line_loss_, speed, left));
  }
}

void Trainer::CheckFinite(double loss, std::int64_t epoch, std::int64_t batch) const {
  if (std::isfinite(loss)) return;
  throw TrainingError("rank " + std::to_string(world_.rank()) + ": the loss is " +
                      (std::isnan(loss) ? "not a number" : "infinite") + " at step " +
                      std::to_string(step_) + " (epoch " + std::to_string(epoch) + ", batch " +
                      std::to_string(batch) + "); try a lower --lr than " +
                      ToText(config_, *FindSetting("lr")) +
                      ", a longer --warmup-epochs, or for netresdeep --no-shared-blocks");
}

void Trainer::CheckRanksAgree() {
  std::vector<at::Tensor> tensors = UniqueParameters(*model_);
  for (auto& buffer : UniqueBuffers(*model_)) tensors.push_back(buffer);
  const std::uint32_t own = Checksum(tensors);
  reporter_.Line("parameters crc32 " + ChecksumText(own));
  if (world_.size() == 1) return;
  const std::vector<std::uint32_t> all = GatherChecksums(world_, own);
  std::string differing;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank] != all[0]) differing += (differing.empty() ? "" : ", ") + std::to_string(rank);
  }
  if (!differing.empty()) {
    throw TrainingError(
        "the parameters of rank " + differing +
        " are not those of rank 0 after training; check these machines' memory and libraries");
  }
  if (world_.rank() == 0)
    reporter_.Line("parameters equal on all ranks: crc32 " + ChecksumText(own));
}

void Trainer::ShowTable(const Evaluation& evaluation, const std::string& model_file) {
  const auto images = static_cast<double>(images_ * world_.size());
  const std::chrono::duration<double> total = std::chrono::steady_clock::now() - program_start_;
  std::vector<std::pair<std::string, std::string>> rows;
  if (config_.eval) {
    rows.emplace_back("test accuracy", Fixed(100 * evaluation.accuracy(), 2) + " % (" +
                                           std::to_string(evaluation.correct) + " of " +
                                           std::to_string(evaluation.images) + " images, loss " +
                                           Fixed(evaluation.loss, 4) + ")");
  }
  rows.emplace_back(
      "images a second",
      Fixed(length_.steps > 0 ? images / training_time_.count() : 0, 0) + " (all ranks)");
  rows.emplace_back("training time",
                    Fixed(training_time_.count(), 1) + " s (" + std::to_string(step_) + " steps)");
  rows.emplace_back("total time", Fixed(total.count(), 1) + " s");
  rows.emplace_back("world size", std::to_string(world_.size()));
  rows.emplace_back("backend", world_.backend_name());
  rows.emplace_back("model", model_file);
  reporter_.Line(ToTable(rows));
}

}  // namespace ddprun
