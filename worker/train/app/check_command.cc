// SPDX-License-Identifier: Apache-2.0
#include <ATen/core/Tensor.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ddprun/world.h"
#include "worker/library/base/text.h"
#include "worker/train/app/command_line.h"
#include "worker/train/app/commands.h"
#include "worker/train/app/launch.h"
#include "worker/train/app/setup.h"

namespace ddprun {
namespace {

constexpr std::chrono::seconds kProgressInterval{10};

// This rank's share of a set, and what its threads have found in it.
class Scan {
 public:
  Scan(const Dataset& data, const World& world)
      : sets_{data.train.get(), data.test.get()},
        rank_(world.rank()),
        ranks_(world.size()),
        share_((Images() + ranks_ - 1 - rank_) / ranks_) {}

  std::int64_t Images() const { return sets_[0]->size() + sets_[1]->size(); }

  // By `threads` threads, until all of the share are checked. What they have found, in the order of
  // the images: "PATH: REASON".
  std::vector<std::string> Run(std::int64_t threads) {
    std::vector<std::jthread> others;
    for (std::int64_t i = 1; i < threads; ++i) others.emplace_back([this] { CheckSome(nullptr); });
    CheckSome([this] { TellProgress(); });
    others.clear();  // waits for them
    if (failure_) std::rethrow_exception(failure_);
    std::sort(damaged_.begin(), damaged_.end());
    std::vector<std::string> found;
    for (auto& [index, text] : damaged_) found.push_back(std::move(text));
    return found;
  }

 private:
  void CheckSome(const std::function<void()>& after_each) {
    for (std::int64_t i = next_++; i < share_; i = next_++) {
      std::int64_t index = rank_ + i * ranks_;
      const bool is_test = index >= sets_[0]->size();
      try {
        sets_[is_test ? 1 : 0]->Check(is_test ? index - sets_[0]->size() : index);
      } catch (const DamagedSample& sample) {
        const std::lock_guard lock(mutex_);
        damaged_.emplace_back(index, sample.fact);
      } catch (...) {
        const std::lock_guard lock(mutex_);
        failure_ = std::current_exception();
        next_ = share_;
      }
      if (after_each) after_each();
    }
  }

  void TellProgress() {
    const auto now = std::chrono::steady_clock::now();
    if (now < told_ + kProgressInterval) return;
    told_ = now;
    std::fprintf(stderr, "train check: %lld of %lld images are checked\n",
                 static_cast<long long>(std::min<std::int64_t>(next_, share_)),
                 static_cast<long long>(share_));
  }

  const SampleSet* const sets_[2];
  const std::int64_t rank_;
  const std::int64_t ranks_;
  const std::int64_t share_;
  std::atomic<std::int64_t> next_ = 0;
  std::chrono::steady_clock::time_point told_ = std::chrono::steady_clock::now();
  std::mutex mutex_;  // for all below
  std::vector<std::pair<std::int64_t, std::string>> damaged_;
  std::exception_ptr failure_;
};

// On rank 0 those of all ranks, on the others nothing.
std::vector<std::string> Gather(const std::vector<std::string>& own, World& world) {
  std::vector<std::string> all;
  // Names of files need not be UTF-8, and must come as they are.
  std::string text;
  for (const std::string& line : own) text += line + '\0';
  for (const std::string& of_rank : world.GatherTexts(text)) {
    for (std::size_t begin = 0; begin < of_rank.size();) {
      const std::size_t end = of_rank.find('\0', begin);
      all.push_back(of_rank.substr(begin, end - begin));
      begin = end + 1;
    }
  }
  std::sort(all.begin(), all.end());
  return all;
}

std::int64_t ThreadsOf(const WorkerEnv& env) {
  const auto cores = static_cast<int>(std::thread::hardware_concurrency());
  return std::max(1, cores / std::max(1, env.local_world_size));
}

void Check(const Config& config, const WorkerEnv& env) {
  const auto begun = std::chrono::steady_clock::now();
  const Dataset data = OpenDataset(config);
  World::Options options = WorldOptions(config);
  options.facts = FactsOf(config, data);
  const auto world = World::Join(env, options);
  Scan scan(data, *world);
  const std::int64_t threads = ThreadsOf(env);
  const std::vector<std::string> damaged = Gather(scan.Run(threads), *world);
  const std::string count = world->BroadcastText(std::to_string(damaged.size()));
  world->Shutdown();
  const std::string of = " of " + std::to_string(scan.Images()) + " images";
  if (world->rank() == 0) {
    for (const std::string& line : damaged) std::printf("%s\n", line.c_str());
    for (const std::string& note : data.notes) std::printf("%s\n", note.c_str());
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - begun;
    std::printf("%s%s (%lld for training, %lld for testing) %s damaged; %d x %lld threads, %s s\n",
                count == "0" ? "none" : count.c_str(), of.c_str(),
                static_cast<long long>(data.train->size()),
                static_cast<long long>(data.test->size()),
                count == "0" || count == "1" ? "is" : "are", world->size(),
                static_cast<long long>(threads), Fixed(passed.count(), 1).c_str());
  }
  if (count == "0") return;
  throw DataError(count + of + (count == "1" ? " is" : " are") +
                  " damaged; replace or remove these files, or train with --skip-damaged");
}

}  // namespace

void RunCheck(const CommandContext& context) {
  CLI::App app(
      "Reads every image of a data set once, on all cores of all ranks, names those that are "
      "damaged, and exits with 1 if there are any.\n"
      "train check ~/data/birds",
      "train check");
  std::string folder;
  app.add_option("data", folder,
                 "the data set's folder, as of --data-dir; with train/ in it the data set is "
                 "imagefolder, unless --dataset says otherwise")
      ->type_name("DATA");
  const SettingFlags settings(app);
  ParseWith(app, context.arguments);
  Config config;
  config.dataset = "";
  settings.Apply(config);
  std::vector<std::string> command = {"check"};
  command.insert(command.end(), context.arguments.begin(), context.arguments.end());
  if (!folder.empty()) config.data_dir = folder;
  if (config.dataset.empty()) {
    if (config.data_dir.empty())
      throw UsageError("train check has nothing to check; name the data set's folder or --dataset");
    std::error_code error;
    if (!std::filesystem::is_directory(std::filesystem::path(config.data_dir) / "train", error))
      throw UsageError(config.data_dir +
                       " has no train/ in it, so it is no imagefolder; pass --dataset to say what "
                       "it is, or another folder");
    config.dataset = "imagefolder";
  }
  config.device = DeviceChoice::kCpu;
  const WorkerEnv env = Launch(config, command);
  PrepareRank(config, env);
  Check(config, env);
}

}  // namespace ddprun
