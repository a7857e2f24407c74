// SPDX-License-Identifier: Apache-2.0
#include "worker/train/app/step_speed.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <memory>
#include <new>
#include <string_view>
#include <system_error>
#include <utility>

#include "worker/train/metrics/console.h"
#include "worker/train/step/graph_steps.h"
#include "worker/train/step/training_state.h"
#include "worker/train/training/training_parts.h"

namespace ddprun {
namespace {

constexpr double kMeasuredSeconds = 0.5;

// LibTorch and oneDNN have no type of error for missing CPU memory, only these messages.
bool IsNoMemory(std::string_view error) {
  return error.find("can't allocate memory") != std::string_view::npos ||
         error.find("could not create a primitive") != std::string_view::npos;
}

// A training that nobody sees, with batches of one epoch after the other.
class Steps {
 public:
  Steps(const Config& config, const Dataset& data, World& world)
      : config_(config),
        state_(config, data.train->size(), /*data_parallel_ranks=*/1),
        console_({.out = nowhere_.get()}),
        parts_(config, data, {.world = world, .console = console_}),
        loop_(parts_.MakeLoop(graph_steps_)),
        epoch_(std::in_place, EpochPlan::Options{.size = data.train->size(),
                                                 .shard = parts_.strategy->shard(),
                                                 .batch_size = config.batch_size,
                                                 .seed = config.seed}) {
    parts_.strategy->Train();
    loop_->recorder().UseForward(parts_.model->Advance(state_.PlannedEpochs()));
    loop_->BeginEpoch(*epoch_);
  }

  // How many samples it had.
  std::int64_t Make() {
    if (next_ == epoch_->batches()) {
      const EpochPlan::Options next = epoch_->Next();
      epoch_.emplace(next);
      loop_->BeginEpoch(*epoch_);
      next_ = 0;
    }
    const StepBatches batches{next_, std::min(config_.accumulate, epoch_->batches() - next_)};
    next_ += batches.count;
    return loop_->MakeStep(batches, config_.lr, StepRecorder::kDummy).samples;
  }

  bool is_warm() const { return loop_->recorder().is_warm(); }

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };

  const Config& config_;
  const std::unique_ptr<std::FILE, Close> nowhere_{std::fopen("/dev/null", "w")};
  TrainingState state_;
  Console console_;
  GraphSteps graph_steps_;
  TrainingParts parts_;
  const std::unique_ptr<TrainingLoop> loop_;
  std::optional<EpochPlan> epoch_;
  std::int64_t next_ = 0;
};

double Measure(const Config& config, const Dataset& data, World& world) {
  Steps steps(config, data, world);
  // Each of a CPU's but the first is like all others.
  do {
    steps.Make();
  } while (!world.device().is_cpu() && !steps.is_warm());
  world.Synchronize();
  const auto begun = std::chrono::steady_clock::now();
  std::int64_t images = 0;
  double seconds = 0;
  // The host is ahead of a GPU: more and more steps between two looks at the clock.
  for (std::int64_t count = 1; seconds < kMeasuredSeconds; count *= 2) {
    for (std::int64_t i = 0; i < count; ++i) images += steps.Make();
    world.Synchronize();
    seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
  }
  return static_cast<double>(images) / seconds;
}

}  // namespace

std::optional<double> StepSpeed(const Config& config, const Dataset& data, World& world) {
  try {
    return Measure(config, data, world);
  } catch (const c10::OutOfMemoryError&) {
  } catch (const std::bad_alloc&) {
  } catch (const std::system_error& error) {  // no memory for a thread's stack
    if (error.code() != std::errc::resource_unavailable_try_again) throw;
  } catch (const std::exception& error) {  // of a loader's thread too
    if (!IsNoMemory(error.what())) throw;
  }
  return std::nullopt;
}

}  // namespace ddprun
