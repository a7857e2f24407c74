// SPDX-License-Identifier: Apache-2.0
// Saves what is tracked, and gives it back: after a restart from the newest checkpoint, and where
// this process was kept (see Main()) from the memory of the rank that has come furthest.
//
// A checkpoint is a safetensors file in which every bit is covered by a checksum; rank 0 writes it
// beside the training, and a crash or a full disk during a save costs that save alone.
#pragma once

#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>
#include <torch/optim/schedulers/lr_scheduler.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "ddprun/detail/epoch_loop.h"
#include "ddprun/detail/training_position.h"
#include "ddprun/world.h"
#include "ddprun/zero_redundancy_optimizer.h"

namespace ddprun {

// All ranks must make one, with the same options and tracked things, and call all its methods. One
// thread at a time. One in a process at a time, or std::invalid_argument is thrown.
class Checkpoints {
 public:
  using Tensors = std::vector<std::pair<std::string, at::Tensor>>;

  enum class ResumeFrom {
    kNewest,   // the newest good checkpoint in the folder
    kThisRun,  // the same, but only one of this run, after a restart by the launcher
    kNothing,  // begins anew
  };

  struct Options {
    std::string folder;            // of its own; empty: nothing is saved
    std::int64_t every_steps = 0;  // 0: at the end alone, and when a signal asks for the end
    std::int64_t keep = 2;         // so many of the newest
    ResumeFrom resume = ResumeFrom::kNewest;
    // In place of that: goes on from this file, or the newest in this folder.
    std::string resume_path = {};
    // SIGTERM, SIGINT, SIGHUP and SIGQUIT ask all ranks to save and to end at their next step, or,
    // if steps are short, about 0.2 s later. A second signal ends this process at once, and so does
    // the first if no step ends in time.
    bool stop_on_signals = true;
    // From Resume() on, the default generators of the CPU and of the world's device begin each step
    // anew, with a number made of the step and of the seed that the CPU's had before Resume(): a
    // training that goes on draws for dropout and the like what an undisturbed one does. Seed
    // before Resume(), each rank alike or by its number. Generators of your own are yours to track.
    bool seed_steps = true;
    // After the first step and in Finish() the ranks' parameters are compared, bit by bit:
    // gradients that were never averaged end the program. False: for ranks that may differ, as on
    // CPUs of several kinds, which round differently.
    bool check_parameters = true;
    // Gets each sentence for a person, on rank 0. Default: stderr.
    std::function<void(const std::string&)> notify = {};
  };

  // Rank 0 creates the folder and locks it. Throws CheckpointError if it cannot, or if another
  // training has it, and std::invalid_argument for options that cannot be.
  Checkpoints(World& world, Options options);
  // Waits for a save that is under way, but not for ever.
  ~Checkpoints();
  Checkpoints(const Checkpoints&) = delete;
  Checkpoints& operator=(const Checkpoints&) = delete;

  // Before Resume(). What is tracked must outlive this object: declare it first. A name has no '/'
  // and comes once, or std::invalid_argument is thrown.
  //
  // Parameters and buffers, under the names of Python's state_dict().
  void Track(const std::string& name, torch::nn::Module& module);
  // SGD, Adam, AdamW, RMSprop or Adagrad: the state of each parameter, and the learning rates.
  // std::invalid_argument for another; give its tensors by the last Track().
  void Track(const std::string& name, torch::optim::Optimizer& optimizer);
  // The schedule's place; the rates that it has set are tracked with the optimizer. One that
  // counts steps is stepped before EndStep(), one that counts epochs after the epoch's last
  // EndStep(). Of ReduceLROnPlateauScheduler LibTorch shows no state: it begins anew.
  void Track(const std::string& name, torch::optim::LRScheduler& schedule);
  // Its state is collected from all ranks, and divided anew among as many as there are when it
  // comes back. It is not kept in memory: what a rank that ends has held alone, is gone.
  void Track(const std::string& name, ShardedOptimizer& optimizer);
  // Numbers, the same on all ranks: a learning-rate schedule's place, the best accuracy.
  void Track(const std::string& name, std::int64_t& number);
  void Track(const std::string& name, double& number);
  // Anything else, the same on all ranks. `read` gives its tensors, which must not change before
  // the next step; `write` gets them back, on the CPU or the world's device.
  void Track(const std::string& name, std::function<Tensors()> read,
             std::function<void(const Tensors&)> write);

  // The training, as a loop over epochs of loops over steps, from where it is:
  //
  //   for (auto& epoch : saved.Epochs(data, {.batch_size = 64, .epochs = 90})) {
  //     for (auto& [batch, at] : epoch) { ... forward, backward, optimizer.step() }
  //     ... evaluation, schedules that count epochs
  //   }
  //
  // `data` is a data set as torch::data::make_data_loader() takes it, or a number of samples, of
  // which a batch has the numbers. `at` is the position after the step. All that a step and a
  // training need beyond that is done: Resume(), unless it was called; EndStep() and
  // World::Progress() when the next batch is asked for; Finish() at the end. Where the ranks'
  // batches differ in size, gradients of the tracked modules are weighted, so that their average is
  // that of all samples. A step that the loop is left in counts as done: leave it after the
  // optimizer's step. When a signal has asked for the end, throws what Main() returns 128 + signal
  // for. Throws what EndStep() and Finish() throw, and std::invalid_argument for a loop without an
  // end or without a batch.
  template <typename Dataset, typename = std::enable_if_t<std::is_class_v<Dataset>>>
  TrainingEpochs<Dataset> Epochs(Dataset data, const EpochOptions& options) {
    return TrainingEpochs<Dataset>(*this, std::move(data), options);
  }
  TrainingEpochs<SampleNumbers> Epochs(std::int64_t samples, const EpochOptions& options) {
    return Epochs(SampleNumbers(static_cast<std::size_t>(samples)), options);
  }

  // The same by hand, where the loop has another form.
  //
  // Once, before the first step: puts the saved state into what is tracked, on all ranks, and says
  // where the training goes on; {} if it begins. Throws CheckpointError, the same on all ranks, if
  // a checkpoint cannot be read or does not fit, and std::invalid_argument if the ranks have not
  // the same options and tracked things.
  TrainingPosition Resume();

  // Directly after each step of the optimizer, before any other collective. True on all ranks if a
  // signal has asked one of them for the end; the state is saved then, and the program should
  // return from Main()'s function. Copies what it saves before it returns. A save that fails (a
  // full disk) is told, and the training goes on. Throws RoundOver if the world has ended,
  // PeerError and what LibTorch throws if another rank has, OwnError if the ranks have not the same
  // parameters, and std::logic_error if `position` counts no further step or no optimizer has made
  // one.
  [[nodiscard]] bool EndStep(const TrainingPosition& position);

  // At the end of the training: its checkpoint is on the disk when this returns. Throws
  // CheckpointError, the same on all ranks, if it cannot be, and OwnError if the ranks have not the
  // same parameters. Without it the destructor saves what is not saved, if no exception is under
  // way; where it cannot, Main() returns 1.
  void Finish(const TrainingPosition& position);

 private:
  friend class EpochLoop;
  class State;

  World& world();
  TrainingPosition Begin();
  // The averaged gradients are multiplied by `weight` on this rank until the step ends.
  void BeginStep(const TrainingPosition& after, double weight);
  void EndStepOrThrow(const TrainingPosition& position);

  std::unique_ptr<State> state_;
};

}  // namespace ddprun
