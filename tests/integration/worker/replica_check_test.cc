// SPDX-License-Identifier: Apache-2.0
// Ranks that train with --check-replicas while bits of their memory are flipped: each flip is found
// and undone, the right rank is named, and the end is that of a training without damage, bit by
// bit. DDPRUN_FLIPS=100 is the long form.
#include "worker/train/training/replica_check.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <sstream>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "tests/integration/worker/ranks.h"
#include "worker/train/data/dataset.h"
#include "worker/train/evaluation/metric.h"
#include "worker/train/observers/checks.h"
#include "worker/train/step/graph_steps.h"
#include "worker/train/training/trainer.h"

namespace ddprun {
namespace {

namespace fs = std::filesystem;

// Between a batch's forward and its backward, on the thread that trains.
std::function<void()> on_batch;
const bool kHookAdded = Metrics().Add("hook", [](const at::Tensor& scores, const at::Tensor&) {
  if (on_batch) on_batch();
  return torch::zeros({}, scores.options());
});

Config SmallTraining(const std::string& folder) {
  Config config;
  config.model = "simple-cnn";
  config.dataset = "synthetic";
  config.samples = 240;
  config.batch_size = 4;
  config.input_size = 16;
  config.epochs = 1000;
  config.lr = 0.01;
  config.eval = false;
  config.metrics = false;
  config.backend = BackendChoice::kGloo;
  config.device = DeviceChoice::kCpu;
  config.output_dir = folder;
  return config;
}

// What all ranks have alike, by its name.
NamedTensors Replicated(const TrainingParts& parts) {
  NamedTensors tensors = parts.parameters;
  for (const auto& entry : parts.optimizer->State()) tensors.push_back(entry);
  return tensors;
}

void Flip(const at::Tensor& tensor, std::uint64_t random) {
  auto* const words = static_cast<volatile std::uint32_t*>(tensor.data_ptr());
  const std::uint64_t word = (random >> 8) % static_cast<std::uint64_t>(tensor.numel());
  words[word] = words[word] ^ (1U << (random % 32));
}

// A rank's one training, and what it came to.
class Training {
 public:
  Training(World& world, Config config) : config_(std::move(config)), world_(world) {
    fs::create_directories(config_.output_dir);
    data_ = OpenDataset(
        config_.dataset,
        {.seed = config_.seed, .samples = config_.samples, .input_size = config_.input_size});
    trainer_.emplace(config_, data_, world_, console_, graph_steps_, kept);
  }

  void Run() { trainer_->Run(); }
  // Its files are written.
  void Close() { trainer_.reset(); }
  std::vector<at::Tensor> End() const {
    std::vector<at::Tensor> tensors;
    for (const auto& [name, tensor] : Replicated(*kept.parts))
      tensors.push_back(tensor.detach().clone());
    // Batch norm's statistics, of which rank 0's count.
    if (world_.rank() == 0) {
      for (const at::Tensor& buffer : kept.parts->model->buffers())
        tensors.push_back(buffer.clone());
    }
    return tensors;
  }

  KeptTraining kept{std::chrono::steady_clock::now()};

 private:
  const Config config_;
  World& world_;
  Dataset data_;
  Console console_{{}};
  GraphSteps graph_steps_;
  std::optional<Trainer> trainer_;
};

void ExpectSame(const std::vector<at::Tensor>& end, const std::vector<at::Tensor>& undisturbed) {
  ASSERT_EQ(end.size(), undisturbed.size());
  for (std::size_t i = 0; i < end.size(); ++i)
    EXPECT_TRUE(torch::equal(end[i], undisturbed[i])) << "tensor " << i;
}

// Trains in `world` without damage, and then with what `disturb` does; `undisturbed` is the end of
// the first.
std::vector<at::Tensor> Undisturbed(World& world, Config config) {
  on_batch = nullptr;
  config.check_replicas = 0;
  config.output_dir += "/undisturbed";
  Training training(world, config);
  training.Run();
  return training.End();
}

std::unique_ptr<World> JoinWorld(const WorkerEnv& env) {
  at::set_num_threads(1);
  return World::Join(env, {.backend = BackendChoice::kGloo,
                           .device = DeviceChoice::kCpu,
                           .timeout = std::chrono::seconds(60)});
}

int FlipsWanted() {
  const char* const wanted = std::getenv("DDPRUN_FLIPS");
  return wanted == nullptr ? 18 : std::atoi(wanted);
}

class ReplicaFlips : public testing::TestWithParam<std::tuple<int, int>> {
 protected:
  ReplicaFlips() : folder_(fs::path(testing::TempDir()) / FolderName()) {
    if (!IsRankProcess()) fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  ~ReplicaFlips() override {
    if (!IsRankProcess()) fs::remove_all(folder_);
  }
  static std::string FolderName() {
    std::string name = testing::UnitTest::GetInstance()->current_test_info()->name();
    std::replace(name.begin(), name.end(), '/', '_');
    return "replicas_" + name;
  }

  const fs::path folder_;
  ReservedPort port_;
};

// When and on which rank: the same on all ranks. The next one comes when the one before is undone.
struct PlannedFlip {
  int rank = 0;
  std::int64_t batch = 0;  // counted with those that are repeated
  std::int64_t delay_us = 0;
  std::uint64_t random = 0;
};

std::vector<PlannedFlip> PlanFlips(int ranks, int check_every, int count) {
  std::mt19937_64 random(static_cast<std::uint64_t>(100 * ranks + check_every));
  std::vector<PlannedFlip> flips;
  std::int64_t batch = 2;
  for (int i = 0; i < count; ++i) {
    flips.push_back({.rank = static_cast<int>(random() % static_cast<std::uint64_t>(ranks)),
                     .batch = batch + static_cast<std::int64_t>(random() % 5),
                     .delay_us = static_cast<std::int64_t>(random() % 3000),
                     .random = random()});
    batch += 3 * check_every + 10;
  }
  return flips;
}

// Flips the bits of this rank's flips in `training`, whose batches it counts, and counts how many
// are found in time.
class Flipper {
 public:
  Flipper(Training& training, std::vector<PlannedFlip> flips, int rank, int check_every)
      : training_(training), check_every_(check_every) {
    for (const PlannedFlip& flip : flips) {
      if (flip.rank == rank) flips_.push_back(flip);
    }
    on_batch = [this] { OnBatch(); };
    thread_ = std::thread([this] { Run(); });
  }
  ~Flipper() { Stop(); }

  // This rank's flips: made, and found.
  int made() const { return made_; }
  int found() const { return found_; }

  void Stop() {
    ending_ = true;
    if (thread_.joinable()) thread_.join();
    on_batch = nullptr;
    Count();
  }

 private:
  void OnBatch() {
    ++batch_;
    Count();
  }

  // On the thread that trains. Found by a check within N steps; named after the repeat at the
  // latest.
  void Count() {
    const std::int64_t damages = training_.kept.damages;
    if (damages == found_) return;
    EXPECT_EQ(damages, found_ + 1) << "named twice for one flip";
    EXPECT_GT(pending_.exchange(0), 0) << "named without a flip";
    EXPECT_LE(batch_ - flipped_at_, 2 * check_every_ + 2) << "found late";
    found_ = static_cast<int>(damages);
  }

  void Run() {
    const auto parts = Replicated(*training_.kept.parts);
    for (const PlannedFlip& flip : flips_) {
      while (batch_ < flip.batch && !ending_) std::this_thread::yield();
      if (ending_) return;
      std::this_thread::sleep_for(std::chrono::microseconds(flip.delay_us));
      const auto tensor = (flip.random >> 40) % parts.size();
      pending_ = 1;
      flipped_at_ = batch_.load();
      Flip(parts[tensor].second, flip.random);
      ++made_;
    }
  }

  Training& training_;
  const int check_every_;
  std::vector<PlannedFlip> flips_;
  std::atomic<std::int64_t> batch_{0};
  std::atomic<std::int64_t> flipped_at_{0};
  std::atomic<int> pending_{0};
  std::atomic<bool> ending_{false};
  std::atomic<int> made_{0};
  int found_ = 0;
  std::thread thread_;
};

// Some change nothing: a bit that rounding takes away before anything was computed with it, or that
// is written anew.
TEST_P(ReplicaFlips, AreFoundAndUndone) {
  const auto [ranks, check_every] = GetParam();
  const int flips = std::max(1, FlipsWanted() / 9);
  RunProcesses(
      ranks, [&](int rank) { return EnvByHand(rank, ranks, port_.port()); },
      [&](const WorkerEnv& env) {
        const auto world = JoinWorld(env);
        Config config = SmallTraining(folder_);
        config.max_steps = flips * (3 * check_every + 10) + 10;
        const std::vector<at::Tensor> undisturbed = Undisturbed(*world, config);
        config.check_replicas = check_every;
        Training training(*world, config);
        Flipper flipper(training, PlanFlips(ranks, check_every, flips), env.rank, check_every);
        training.Run();
        flipper.Stop();
        ExpectSame(training.End(), undisturbed);
        std::ofstream(folder_ / ("found-" + std::to_string(env.rank)))
            << flipper.made() << ' ' << flipper.found();
        world->Shutdown();
      });
  if (IsRankProcess()) return;
  int made = 0;
  int found = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    int rank_made = 0;
    int rank_found = 0;
    std::ifstream(folder_ / ("found-" + std::to_string(rank))) >> rank_made >> rank_found;
    made += rank_made;
    found += rank_found;
  }
  std::printf("%d flips, %d found\n", made, found);
  EXPECT_EQ(made, flips);
  EXPECT_GE(5 * found, 3 * made);
}

INSTANTIATE_TEST_SUITE_P(RanksAndSteps, ReplicaFlips,
                         testing::Combine(testing::Values(2, 3, 4), testing::Values(1, 3, 10)));

std::string TextOf(const fs::path& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

// The steps that have records.
std::vector<int> StepsIn(const fs::path& metrics) {
  std::vector<int> steps;
  std::ifstream file(metrics);
  for (std::string line; std::getline(file, line);) {
    if (line.find("loss/train") == std::string::npos) continue;
    steps.push_back(std::atoi(line.c_str() + line.find("\"step\":") + 7));
  }
  return steps;
}

std::vector<int> StepsUpTo(int last) {
  std::vector<int> steps(static_cast<std::size_t>(last));
  std::iota(steps.begin(), steps.end(), 1);
  return steps;
}

// Damage at chosen batches, by the thread that trains.
class ReplicaDamage : public testing::Test {
 protected:
  using Damage = std::function<void(Training& training, int rank, int batch)>;

  ReplicaDamage()
      : folder_(fs::path(testing::TempDir()) /
                ("replica_damage_" +
                 std::string(testing::UnitTest::GetInstance()->current_test_info()->name()))) {
    if (!IsRankProcess()) fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  ~ReplicaDamage() override {
    if (!IsRankProcess()) fs::remove_all(folder_);
  }

  // `named`: how often each rank is to be named.
  void ExpectHealed(int check_every, const std::vector<int>& named, const Damage& damage) {
    const int ranks = static_cast<int>(named.size());
    RunProcesses(
        ranks, [&](int rank) { return EnvByHand(rank, ranks, port_.port()); },
        [&](const WorkerEnv& env) {
          const auto world = JoinWorld(env);
          Config config = SmallTraining(folder_);
          config.max_steps = 20;
          config.log_samples = config.metrics = true;
          config.log_every = 1;
          const std::vector<at::Tensor> undisturbed = Undisturbed(*world, config);
          config.check_replicas = check_every;
          Training training(*world, config);
          int batch = 0;
          on_batch = [&] { damage(training, env.rank, ++batch); };
          training.Run();
          on_batch = nullptr;
          ExpectSame(training.End(), undisturbed);
          training.Close();
          const std::string samples = "samples-" + std::to_string(env.rank) + ".jsonl";
          EXPECT_EQ(TextOf(folder_ / samples), TextOf(folder_ / "undisturbed" / samples));
          if (env.rank == 0) {
            EXPECT_EQ(StepsIn(folder_ / "metrics.jsonl"), StepsUpTo(20));
          }
          EXPECT_EQ(training.kept.damages, named[static_cast<std::size_t>(env.rank)]);
          world->Shutdown();
        });
  }

  static void FlipParameter(Training& training) {
    Flip(training.kept.parts->parameters.front().second, 7U << 8 | 21);
  }

  const fs::path folder_;
  ReservedPort port_;
};

TEST_F(ReplicaDamage, OfTheCopyIsHealedFromAnotherRank) {
  ExpectHealed(3, {0, 1}, [](Training& training, int rank, int batch) {
    if (rank != 1 || batch != 5) return;
    Flip(training.kept.agreed.replicated.tensors().front(), 3);
    FlipParameter(training);
  });
}

TEST_F(ReplicaDamage, DuringTheRepeatIsRepeatedToo) {
  // Steps 4 to 6 are made as batches 4 to 6, 7 to 9, and 10 to 12.
  ExpectHealed(3, {1, 1}, [](Training& training, int rank, int batch) {
    if (rank == 0 && batch == 5) FlipParameter(training);
    if (rank == 1 && batch == 8) FlipParameter(training);
  });
}

TEST_F(ReplicaDamage, OfTwoRanksOfFourNamesBoth) {
  ExpectHealed(3, {0, 1, 1, 0}, [](Training& training, int rank, int batch) {
    if (rank == 1 && batch == 5) FlipParameter(training);
    if (rank == 2 && batch == 6) FlipParameter(training);
  });
}

TEST_F(ReplicaDamage, OfOptimizerStateIsFound) {
  ExpectHealed(1, {0, 0, 1}, [](Training& training, int rank, int batch) {
    if (rank == 2 && batch == 5)
      Flip(training.kept.parts->optimizer->State().front().second, 7U << 8 | 30);
  });
}

TEST_F(ReplicaDamage, ThatMakesTheLossNotFiniteDoesNotEndTheTraining) {
  ExpectHealed(10, {0, 1}, [](Training& training, int rank, int batch) {
    if (rank != 1 || batch != 13) return;
    // As damage does, behind autograd's back.
    const at::Tensor parameter = training.kept.parts->parameters.front().second.detach();
    std::fill_n(parameter.data_ptr<float>(), parameter.numel(),
                std::numeric_limits<float>::infinity());
  });
}

TEST_F(ReplicaDamage, IsNoReasonForADivergingTraining) {
  const auto world = JoinWorld({});
  Config config = SmallTraining(folder_);
  config.max_steps = 20;
  config.lr = 1e30;
  config.check_replicas = 3;
  Training training(*world, config);
  int batches = 0;
  on_batch = [&] { ++batches; };
  EXPECT_THROW(training.Run(), TrainingError);
  on_batch = nullptr;
  EXPECT_LE(batches, 9) << "repeated more than once";
}

}  // namespace
}  // namespace ddprun
