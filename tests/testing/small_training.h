// SPDX-License-Identifier: Apache-2.0
// The parts of a small training for tests of its steps, and a stand-in for a CUDA graph that counts
// how many of it are alive.
#pragma once

#include <torch/torch.h>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <ostream>
#include <utility>

#include "worker/train/data/dataset.h"
#include "worker/train/models/models.h"
#include "worker/train/parallel/data_parallel.h"
#include "worker/train/step/training_loop.h"

namespace ddprun {

inline constexpr char kSmallModel[] = "simple-cnn";

inline Config Small(Config config = {.model = kSmallModel}) {
  config.dataset = "synthetic";
  config.samples = 100;
  config.batch_size = 8;
  config.eval_batch_size = 16;
  config.input_size = 16;
  config.epochs = 4;
  return config;
}

inline Dataset DataOf(const Config& config) {
  return OpenDataset(config.dataset,
                     {.seed = 1, .samples = config.samples, .input_size = config.input_size});
}

// How many captured graphs are alive.
class Graphs {
 public:
  void Add(int number) {
    const std::lock_guard lock(mutex_);
    alive_ += number;
    changed_.notify_all();
  }
  // ncclCommAbort(): returns when there is none.
  bool AwaitNone(std::chrono::milliseconds limit) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, limit, [this] { return alive_ == 0; });
  }
  int alive() {
    const std::lock_guard lock(mutex_);
    return alive_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int alive_ = 0;
};

class CountedGraph : public StepGraph {
 public:
  explicit CountedGraph(std::shared_ptr<Graphs> graphs) : graphs_(std::move(graphs)) {}
  ~CountedGraph() override {
    if (work_) graphs_->Add(-1);
  }
  void Capture(const std::function<void()>& work) override {
    work_ = work;
    graphs_->Add(1);
  }
  void Replay() override { work_(); }

 private:
  const std::shared_ptr<Graphs> graphs_;
  std::function<void()> work_;
};

// LibTorch's rule for memory that graphs share (CUDACachingAllocator of 2.11): once all graphs of a
// pool are destroyed, none can be captured into it.
class PooledGraph : public CountedGraph {
 public:
  struct Pool {
    int captured = 0;
    int alive = 0;
  };
  PooledGraph(std::shared_ptr<Graphs> graphs, std::shared_ptr<Pool> pool)
      : CountedGraph(std::move(graphs)), pool_(std::move(pool)) {}
  ~PooledGraph() override { pool_->alive -= captured_; }
  void Capture(const std::function<void()>& work) override {
    TORCH_CHECK(pool_->captured == 0 || pool_->alive > 0, "use_count > 0");
    CountedGraph::Capture(work);
    captured_ = 1;
    ++pool_->captured;
    ++pool_->alive;
  }

 private:
  const std::shared_ptr<Pool> pool_;
  int captured_ = 0;
};

// As Accelerator::GraphMaker().
inline MakeStepGraph MakerOfPooledGraphs(std::shared_ptr<Graphs> graphs) {
  return [graphs = std::move(graphs), pool = std::make_shared<PooledGraph::Pool>()] {
    return std::make_unique<PooledGraph>(graphs, pool);
  };
}

// Moves a model to "meta", which Module::to() refuses.
inline void LoseValues(const torch::nn::Module& module) {
  const auto lose = [](const at::Tensor& tensor) {
    const at::Tensor empty =
        at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options().device(at::kMeta));
    tensor.unsafeGetTensorImpl()->shallow_copy_from(empty.getIntrusivePtr());
  };
  for (const at::Tensor& parameter : module.parameters()) lose(parameter);
  for (const at::Tensor& buffer : module.buffers()) lose(buffer);
}

// The name of a test with these settings.
inline void PrintTo(const Config& config, std::ostream* out) {
  *out << config.model << ", " << config.optimizer << (config.augment ? ", augmented" : "")
       << (config.amp == Amp::kFp16 ? ", fp16" : "") << (config.ema_decay > 0 ? ", averaged" : "");
}

// Parts of a training on any device; TrainingParts without its console lines.
struct Training {
  Training(const Config& own, World& in)
      : config(own),
        world(in),
        data(DataOf(config)),
        model([&] {
          torch::manual_seed(5);
          auto made = MakeModel(config.model, {.height = config.input_size,
                                               .width = config.input_size,
                                               .whiten_epochs = config.whiten_epochs});
          UseChannelsLast(*made);
          if (world.device().is_meta())
            LoseValues(*made);
          else
            made->to(world.device());
          made->train();
          return made;
        }()),
        strategy(world, *model, {}),
        parameters(strategy.Parameters()),
        optimizer(MakeOptimizer(config, parameters)),
        scaler(config.amp == Amp::kFp16, world.device()) {
    if (config.ema_decay > 0) average.emplace(parameters, config.ema_decay);
  }

  std::unique_ptr<TrainingLoop> MakeStep(MakeStepGraph make_graph = nullptr,
                                         std::optional<RunAheadLimit> limit = std::nullopt) {
    auto feed = std::make_unique<GpuFeed>(config, dynamic_cast<const FixedSizeImages&>(*data.train),
                                          world.device());
    return std::make_unique<TrainingLoop>(
        config,
        LoopParts{.world = world,
                  .strategy = strategy,
                  .optimizer = *optimizer,
                  .scaler = scaler,
                  .average = average ? &*average : nullptr},
        std::move(feed),
        std::make_unique<StepRecorder>(world, std::move(make_graph), std::move(limit)));
  }

  EpochPlan Epoch() const {
    return EpochPlan({.size = data.train->size(),
                      .shard = strategy.shard(),
                      .batch_size = config.batch_size,
                      .seed = config.seed});
  }

  const Config config;
  World& world;
  const Dataset data;
  std::shared_ptr<ImageModel> model;
  DataParallel strategy;
  NamedTensors parameters;
  std::unique_ptr<Optimizer> optimizer;
  GradScaler scaler;
  std::optional<WeightAverage> average;
};

}  // namespace ddprun
