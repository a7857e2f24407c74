// SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ddprun/world.h"
#include "proto/text.h"
#include "worker/library/accelerator/accelerator.h"
#include "worker/library/base/available_memory.h"
#include "worker/train/app/command_line.h"
#include "worker/train/app/commands.h"
#include "worker/train/app/setup.h"
#include "worker/train/app/step_speed.h"
#include "worker/train/app/tuning.h"
#include "worker/train/step/batch_feed.h"
#include "worker/train/step/make_training_loop.h"
#include "worker/train/training/training_parts.h"

namespace ddprun {
namespace {

constexpr double kStandardLimit = 50;  // seconds: with the start, less than a minute
constexpr double kLimitMax = 1e6;
constexpr std::int64_t kFirstBatch = 8;
// Share of the memory that is free at the beginning. Another process may need some of the rest, and
// the estimate is a straight line.
constexpr double kMemoryShare = 0.8;

struct Options {
  double limit = kStandardLimit;
  std::vector<std::string> settings;
};

Options ParseOptions(const std::vector<std::string>& arguments) {
  Options options;
  CLI::App app(
      "Makes steps of a training with these settings on this machine, alone, with batches of 8, "
      "16, 32 ... images until one does not fit into the memory, then in the other memory format "
      "and with other numbers of loader threads. Prints each one's speed, the largest batch that "
      "fits, and the command with the smallest batch that is as fast as any (within 5 %).",
      "train tune");
  app.add_option("--time-limit", options.limit, "seconds for all trials; batches get half of them")
      ->type_name("NUMBER [50]")
      ->check(CLI::Range(1.0, kLimitMax));
  app.footer("All other settings are those of `train` (see train --help).");
  app.allow_extras();
  ParseWith(app, arguments);
  options.settings = app.remaining();
  return options;
}

class Tuner {
 public:
  Tuner(Config config, double limit)
      : config_(std::move(config)),
        data_(OpenDataset(config_)),
        world_(World::Join(Environment(), WorldOptions(config_))),
        given_({.first = {.batch_size = std::min(kFirstBatch, data_.train->size()),
                          .channels_last = config_.channels_last,
                          .loader_threads = config_.loader_threads},
                .batch_max = data_.train->size(),
                .has_layouts = config_.model != "linear",
                .threads_max = ThreadsMax(),
                .seconds = limit}) {}

  const std::vector<TuneResult>& Run() {
    std::fputs(kTuneTableHead, stdout);
    while (const auto trial = NextTrial(given_, results_)) {
      results_.push_back(Try(*trial));
      std::fputs(ToRow(results_.back()).c_str(), stdout);
      std::fflush(stdout);
    }
    return results_;
  }

 private:
  TuneResult Try(const TuneTrial& trial) {
    Config config = config_;
    config.batch_size = trial.batch_size;
    config.channels_last = trial.channels_last;
    config.loader_threads = trial.loader_threads;
    const auto begun = std::chrono::steady_clock::now();
    TuneResult result{.trial = trial};
    result.images_per_second = StepSpeed(config, data_, *world_).value_or(0);
    result.seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
    // On a CPU the kernel kills a process that takes too much memory: the need is estimated
    // instead.
    const std::int64_t taken = PeakMemory() - taken_before_;
    result.twice_fits =
        !world_->device().is_cpu() ||
        2.0 * static_cast<double>(taken) < kMemoryShare * static_cast<double>(available_before_);
    return result;
  }

  std::int64_t ThreadsMax() const {
    if (WholeModelOnGpu(config_, *world_) && config_.device_data &&
        GpuFeed::Fits(config_, *data_.train,
                      LoadAccelerator().FreeBytes(world_->device().index()))) {
      return 0;
    }
    return std::max<std::int64_t>(1, std::thread::hardware_concurrency());
  }

  const Config config_;
  const Dataset data_;
  const std::unique_ptr<World> world_;
  const TuneGiven given_;
  const std::int64_t taken_before_ = PeakMemory();
  const std::int64_t available_before_ = AvailableMemory();
  std::vector<TuneResult> results_;
};

}  // namespace

void RunTune(const CommandContext& context) {
  const Options options = ParseOptions(context.arguments);
  const Config config = ParseCommandLine(options.settings);
  const WorkerEnv env = Environment();
  if (env.world_size > 1)
    throw UsageError("train tune measures one process; run it without a launcher");
  if (config.pipeline > 1)
    throw UsageError("train tune measures a whole model; leave --pipeline out");
  PrepareRank(config, env);
  ChooseKernels(config);
  Tuner tuner(config, options.limit);
  const std::vector<TuneResult>& results = tuner.Run();
  if (LargestBatch(results) == 0)
    throw std::runtime_error(
        "not even a batch of " + std::to_string(results.front().trial.batch_size) +
        " images fits into the memory; choose a smaller --model or --input-size");
  const TuneResult best = Recommended(results);
  std::string command = "train";
  for (const std::string& word : options.settings) command += " " + ShellQuote(word);
  std::printf("largest batch that was tried and fits: %lld\n%s %s\n",
              static_cast<long long>(LargestBatch(results)), command.c_str(),
              ToFlags(best.trial).c_str());
  if (best.trial.batch_size != config.batch_size)
    std::printf("the batch size changes what is learnt: --lr is for batches of %lld\n",
                static_cast<long long>(config.batch_size));
}

}  // namespace ddprun
