// SPDX-License-Identifier: Apache-2.0
// One training, from initial parameters to the written model, as one of the world's ranks.
#pragma once

#include <torch/optim/sgd.h>

#include <chrono>
#include <memory>
#include <stdexcept>
#include <string>

#include "worker/augment.h"
#include "worker/config.h"
#include "worker/dataset.h"
#include "worker/ddp.h"
#include "worker/evaluate.h"
#include "worker/loader.h"
#include "worker/models.h"
#include "worker/progress_sender.h"
#include "worker/reporter.h"
#include "worker/schedule.h"
#include "worker/world.h"

namespace ddprun {

inline constexpr char kModelFileName[] = "cifar_net.pth";

// The training cannot go on: one sentence with what to try.
struct TrainingError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// How long a training is, in steps of all ranks together.
struct Length {
  std::int64_t steps_per_epoch = 0;
  std::int64_t steps = 0;
  std::int64_t epochs = 0;  // those begun
};
Length TrainingLength(const Config& config, std::int64_t train_images, int world_size);
Schedule MakeSchedule(const Config& config, const Length& length);

// Makes the folder, if it is not there, and makes sure that it can be written to, so that a
// training does not end with nothing. Throws UsageError.
void PrepareOutputDirectory(const std::string& path);

class Trainer {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // All must outlive the trainer. `program_start` is what the table's total time counts from. Makes
  // the model, which becomes rank 0's on all ranks.
  Trainer(const Config& config, const Dataset& data, World& world, Reporter& reporter,
          ProgressSender& progress, Time program_start);

  // Trains, checks that all ranks have the same model, evaluates, and on rank 0 writes the model
  // and shows the table. Throws TrainingError (a loss that is not finite, ranks that differ),
  // c10::Error (a collective that failed, because another rank has ended), and std::runtime_error
  // (the model cannot be written).
  void Run();

 private:
  void TrainEpoch(std::int64_t epoch);
  at::Tensor Step(const Batch& batch);
  void Enter(const char* section);
  void TellStep(std::int64_t epoch);
  void Report(std::int64_t epoch, std::int64_t batch, std::int64_t batches, const at::Tensor& loss);
  void CheckFinite(double loss, std::int64_t epoch, std::int64_t batch) const;
  void CheckRanksAgree();
  void ShowTable(const Evaluation& evaluation, const std::string& model_file);

  const Config& config_;
  const Dataset& data_;
  World& world_;
  Reporter& reporter_;
  ProgressSender& progress_;
  const Time program_start_;
  const bool channels_last_;
  const Length length_;
  const Schedule schedule_;
  const BatchWriter writer_;

  std::shared_ptr<ImageModel> model_;
  std::unique_ptr<DistributedDataParallel> ddp_;
  std::unique_ptr<torch::optim::SGD> optimizer_;

  std::int64_t step_ = 0;
  std::int64_t images_ = 0;  // of this rank
  Time training_start_{};
  std::chrono::duration<double> training_time_{};
  // Of the rate that was told last.
  Time rate_time_{};
  std::int64_t rate_images_ = 0;
  // Of the latest line.
  Time line_time_{};
  std::int64_t line_images_ = 0;
  double line_loss_ = 0;
};

}  // namespace ddprun
