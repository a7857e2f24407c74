// SPDX-License-Identifier: Apache-2.0
// A small training by its steps alone, queued or replayed: what they come to, to be compared.
#pragma once

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "worker/train/data/dataset.h"
#include "worker/train/models/models.h"
#include "worker/train/parallel/data_parallel.h"
#include "worker/train/parallel/precision.h"
#include "worker/train/step/training_loop.h"

namespace ddprun {

inline constexpr int kEpochs = 3;

enum class How { kQueued, kReplayed };

struct Trained {
  std::vector<at::Tensor> parameters;
  std::vector<double> losses;
  std::int64_t samples = 0;
};

// A setting with a name, for tests of several.
struct Recipe {
  const char* name;
  Config config;
};

template <typename Info>
std::string RecipeName(const Info& info) {
  const auto& [recipe, resident] = info.param;
  return std::string(recipe.name) + (resident ? "OnDevice" : "Loaded");
}

inline void PrintTo(const Recipe& recipe, std::ostream* out) { *out << recipe.name; }

inline Config SmallTraining(const Config& base = {}) {
  Config config = base;
  config.model = "simple-cnn";
  config.dataset = "synthetic";
  config.samples = 100;
  config.batch_size = 8;
  config.input_size = 16;
  return config;
}

// A CPU computes in floats where fp16 needs a GPU: its scale all the same.
inline std::optional<at::ScalarType> AutocastHere(Amp amp, at::Device device) {
  if (amp == Amp::kFp16 && !device.is_cuda()) return std::nullopt;
  return AutocastType(amp, device);
}

// `make_graph` is called for kReplayed; `consumed` samples of the first epoch are left out;
// `before_step` is called with the number of each step, counted from 0, and with -1 after
// the last. Numbers are asked for then, but for gradients' norms.
inline Trained TrainBy(How how, const Config& config, World& world, bool resident,
                       const MakeStepGraph& make_graph, std::int64_t consumed = 0,
                       const std::function<void(std::int64_t step)>& before_step = {}) {
  const Dataset data = OpenDataset(
      config.dataset, {.seed = 1, .samples = config.samples, .input_size = config.input_size});
  torch::manual_seed(5);
  auto model = MakeModel(config.model, {.height = config.input_size, .width = config.input_size});
  UseChannelsLast(*model);
  model->to(world.device());
  model->train();
  const bool on_gpu = world.device().is_cuda();
  DataParallel strategy(world, *model, {.autocast = AutocastHere(config.amp, world.device())});
  const NamedTensors parameters = strategy.Parameters();
  const auto optimizer = MakeOptimizer(config, parameters);
  GradScaler scaler = MakeGradScaler(config, world.device());
  // With floats only such a scale overflows.
  if (!on_gpu && scaler.enabled()) scaler.Restore({.scale = 3e38});
  std::optional<WeightAverage> average;
  if (config.ema_decay > 0) average.emplace(parameters, config.ema_decay);
  std::optional<CastWeights> casts;
  if (const auto type = AutocastHere(config.amp, world.device()))
    casts.emplace(parameters, world.device(), *type, *optimizer);
  const LoopParts parts{.world = world,
                        .strategy = strategy,
                        .optimizer = *optimizer,
                        .scaler = scaler,
                        .average = average ? &*average : nullptr,
                        .casts = casts ? &*casts : nullptr};
  std::unique_ptr<BatchFeed> feed;
  if (resident) {
    feed = std::make_unique<GpuFeed>(config, dynamic_cast<const FixedSizeImages&>(*data.train),
                                     world.device(), strategy.image_type());
  } else {
    feed = std::make_unique<LoaderFeed>(config, data, world);
  }
  TrainingLoop step(
      config, parts, std::move(feed),
      std::make_unique<StepRecorder>(world, how == How::kReplayed ? make_graph : MakeStepGraph()));
  Trained trained;
  std::vector<at::Tensor> losses;
  for (int epoch = 0; epoch < kEpochs; ++epoch) {
    const auto number = static_cast<std::uint64_t>(epoch);
    const EpochPlan plan({.size = data.train->size(),
                          .shard = strategy.shard(),
                          .batch_size = config.batch_size,
                          .seed = config.seed,
                          .epoch = number,
                          .consumed = epoch == 0 ? consumed : 0});
    step.BeginEpoch(plan);
    step.recorder().UseForward(epoch == 1 ? 1 : 0);  // which changes no number
    for (std::int64_t first = 0; first < plan.batches(); first += config.accumulate) {
      const std::int64_t count = std::min(config.accumulate, plan.batches() - first);
      const double rate = 0.05 / (1.0 + static_cast<double>(losses.size()));
      if (before_step) before_step(static_cast<std::int64_t>(losses.size()));
      const auto result = step.MakeStep({.first = first, .count = count}, rate,
                                        /*number=*/static_cast<std::int64_t>(losses.size()) + 1);
      losses.push_back(result.loss);
      trained.samples += result.samples;
      if (config.clip_norm > 0) trained.losses.push_back(result.gradient_norm.item<double>());
    }
  }
  if (before_step) before_step(-1);
  for (const at::Tensor& loss : losses) trained.losses.push_back(loss.item<double>());
  for (const auto& [name, parameter] : parameters)
    trained.parameters.push_back(parameter.detach().clone());
  if (!average) return trained;
  for (const auto& [name, tensor] : average->State()) trained.parameters.push_back(tensor.clone());
  return trained;
}

inline void ExpectAlike(const Trained& a, const Trained& b) {
  ASSERT_EQ(a.losses.size(), b.losses.size());
  EXPECT_EQ(a.samples, b.samples);
  for (std::size_t i = 0; i < a.losses.size(); ++i)
    EXPECT_NEAR(a.losses[i], b.losses[i], 1e-4) << "step " << i;
  ASSERT_EQ(a.parameters.size(), b.parameters.size());
  for (std::size_t i = 0; i < a.parameters.size(); ++i)
    EXPECT_TRUE(at::allclose(a.parameters[i], b.parameters[i], 1e-3, 1e-5)) << "tensor " << i;
}

}  // namespace ddprun
