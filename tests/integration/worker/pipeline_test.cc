// SPDX-License-Identifier: Apache-2.0
// A model in stages gives the losses, and in the end the parameters, of the unsplit model that sees
// the same micro-batches one after the other: over ranks (processes), in one process, with and
// without data parallelism on top. And what happens when a stage fails.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>
#include <unistd.h>

#include <cmath>

#include "tests/integration/rendezvous/test_node.h"
#include "tests/integration/worker/ranks.h"
#include "worker/library/base/unique_tensors.h"
#include "worker/train/data/dataset.h"
#include "worker/train/parallel/data_parallel.h"
#include "worker/train/parallel/local_pipeline.h"
#include "worker/train/parallel/pipeline_parallel.h"
#include "worker/train/parallel/pipeline_plan.h"
#include "worker/train/parallel/precision.h"
#include "worker/train/step/training_loop.h"

namespace ddprun {
namespace {

using std::chrono::milliseconds;
using testing::AllOf;
using testing::HasSubstr;

constexpr milliseconds kTimeout{60'000};
// Sums are in another order in the ranks, and how far apart that is after some steps depends on the
// processor: 5e-5 was seen on one without AVX-512, below 1e-5 on others.
constexpr double kTolerance = 1e-4;

struct Case {
  std::string model = "netresdeep";
  bool shared_blocks = true;
  int stages = 2;
  int replicas = 1;
  PipelineSchedule schedule = PipelineSchedule::kOneForwardOneBackward;
  int micro_batches = 4;
  int batch = 8;
  int steps = 12;
  std::optional<at::ScalarType> autocast = std::nullopt;
};

Config ConfigOf(const Case& wanted) {
  Config config;
  config.model = wanted.model;
  config.shared_blocks = wanted.shared_blocks;
  config.batch_size = wanted.batch;
  config.pipeline = wanted.stages;
  config.micro_batches = wanted.micro_batches;
  config.pipeline_schedule = wanted.schedule;
  return config;
}

std::shared_ptr<ImageModel> Make(const Case& wanted) {
  torch::manual_seed(3);
  auto model = MakeModel(wanted.model, {.shared_blocks = wanted.shared_blocks});
  UseChannelsLast(*model);
  model->train();
  return model;
}

// As a rank that has not read the weights which rank 0 starts from.
void Spoil(ImageModel& model) {
  const torch::NoGradGuard no_grad;
  for (at::Tensor& parameter : model.parameters()) parameter.fill_(0.5);
}

// Every third batch is a short one that the micro-batches do not divide.
ParallelStrategy::Batch BatchOf(const Case& wanted, int replica, int step) {
  const int size = step % 3 == 2 ? wanted.batch - 3 : wanted.batch;
  auto generator = at::detail::createCPUGenerator(static_cast<std::uint64_t>(100 * step + replica));
  const at::Tensor images = at::randn({size, 3, 32, 32}, generator, at::TensorOptions());
  return {.images = images.contiguous(at::MemoryFormat::ChannelsLast),
          .labels = at::randint(10, {size}, generator, at::TensorOptions(at::kLong))};
}

std::unique_ptr<torch::optim::SGD> MakeSgd(const NamedTensors& parameters) {
  std::vector<at::Tensor> tensors;
  for (const auto& entry : parameters) tensors.push_back(entry.second);
  return std::make_unique<torch::optim::SGD>(
      tensors, torch::optim::SGDOptions(0.01).momentum(0.9).weight_decay(5e-4));
}

struct Result {
  std::vector<double> losses;  // by step
  std::shared_ptr<ImageModel> model;
};

// The unsplit model in one process: all replicas' batches, micro-batch by micro-batch.
Result TrainUnsplit(const Case& wanted, int replica) {
  Result result{.model = Make(wanted)};
  NamedTensors parameters;
  for (const at::Tensor& parameter : UniqueParameters(*result.model))
    parameters.emplace_back("", parameter);
  const auto optimizer = MakeSgd(parameters);
  for (int step = 0; step < wanted.steps; ++step) {
    optimizer->zero_grad();
    for (int r = 0; r < wanted.replicas; ++r) {
      const auto batch = BatchOf(wanted, r, step);
      const auto sizes = MicroBatchSizes(batch.labels.size(0), wanted.micro_batches);
      const auto images = batch.images.split_with_sizes(sizes);
      const auto labels = batch.labels.split_with_sizes(sizes);
      double loss = 0;
      for (std::size_t i = 0; i < sizes.size(); ++i) {
        const Autocast autocast(at::kCPU, wanted.autocast);
        const at::Tensor mean = at::cross_entropy_loss(result.model->forward(images[i]), labels[i]);
        const double share =
            static_cast<double>(sizes[i]) / static_cast<double>(batch.labels.size(0));
        (mean * (share / wanted.replicas)).backward();
        loss += mean.item<double>() * share;
      }
      if (r == replica) result.losses.push_back(loss);
    }
    optimizer->step();
  }
  return result;
}

std::vector<double> TrainWith(ParallelStrategy& strategy, const Case& wanted) {
  strategy.Train();
  const auto optimizer = MakeSgd(strategy.Parameters());
  std::vector<double> losses;
  for (int step = 0; step < wanted.steps; ++step) {
    const auto batch = BatchOf(wanted, strategy.shard().rank, step);
    losses.push_back(strategy.ForwardBackward(batch, /*first=*/true, /*last=*/true).item<double>());
    optimizer->step();
  }
  return losses;
}

void ExpectSame(const Result& expected, const std::vector<double>& losses) {
  ASSERT_EQ(losses.size(), expected.losses.size());
  for (std::size_t i = 0; i < losses.size(); ++i) {
    EXPECT_NEAR(losses[i], expected.losses[i], kTolerance * std::max(1.0, expected.losses[i]))
        << "step " << i;
  }
}

void ExpectSameParameters(ImageModel& expected, ImageModel& actual) {
  const auto parameters = actual.named_parameters();
  for (const auto& item : expected.named_parameters()) {
    EXPECT_TRUE(at::allclose(parameters[item.key()], item.value(), 1e-4, kTolerance)) << item.key();
  }
}

// Batch norm's statistics are those of the first model's micro-batches.
void ExpectSameScores(ImageModel& expected, const at::Tensor& scores, const at::Tensor& images) {
  const torch::NoGradGuard no_grad;
  expected.eval();
  // bf16 has eight bits.
  const double tolerance = scores.scalar_type() == at::kFloat ? 1e-4 : 3e-2;
  EXPECT_TRUE(
      at::allclose(scores.to(at::kFloat), expected.forward(images), 10 * tolerance, tolerance));
}

void InRanks(int size, const std::function<void(World&)>& body) {
  const ReservedPort reserved;
  RunProcesses(
      size, [&](int rank) { return EnvByHand(rank, size, reserved.port()); },
      [&](const WorkerEnv& env) {
        at::set_num_threads(1);
        const auto world = World::Join(env, {.backend = BackendChoice::kGloo, .timeout = kTimeout});
        body(*world);
        world->Shutdown();
      });
}

void ExpectRanksTrainAsUnsplit(const Case& wanted) {
  InRanks(wanted.stages * wanted.replicas, [&](World& world) {
    const Config config = ConfigOf(wanted);
    const PipelinePlan plan = MakePipelinePlan(config, world.size());
    const auto model = Make(wanted);
    if (world.rank() > 0) Spoil(*model);
    const auto cuts = ChooseCuts(config, plan, world, *model, {3, 32, 32});
    PipelineParallel strategy(world, *model, plan, cuts, {.autocast = wanted.autocast});
    EXPECT_EQ(strategy.shard().world_size, wanted.replicas);
    EXPECT_EQ(strategy.shard().rank, world.rank() / wanted.stages);
    const auto losses = TrainWith(strategy, wanted);
    strategy.Evaluate();
    const at::Tensor images = BatchOf(wanted, 0, 0).images;
    const at::Tensor scores = strategy.Scores(images);
    EXPECT_EQ(scores.defined(), strategy.HasScores());
    strategy.GatherModel();
    // The losses of each model, and on rank 0 all parameters; on one rank of each model, as what
    // they are compared with takes its time.
    if (!strategy.HasScores() && world.rank() != 0) return;
    // What the unsplit model's statistics and precision are, too.
    const bool alone = wanted.replicas == 1 && !wanted.autocast;
    const Result expected = TrainUnsplit(wanted, strategy.shard().rank);
    ExpectSame(expected, losses);
    if (world.rank() == 0) ExpectSameParameters(*expected.model, *model);
    if (alone && strategy.HasScores()) ExpectSameScores(*expected.model, scores, images);
  });
}

void ExpectProcessTrainsAsUnsplit(const Case& wanted) {
  // As the ranks: on a busy machine threads that wait for each other take long.
  at::set_num_threads(1);
  const auto world = World::Join(WorkerEnv{}, {.backend = BackendChoice::kGloo});
  const Config config = ConfigOf(wanted);
  const PipelinePlan plan = MakePipelinePlan(config, 1);
  const auto model = Make(wanted);
  const auto cuts = ChooseCuts(config, plan, *world, *model, {3, 32, 32});
  const std::vector<at::Device> devices(static_cast<std::size_t>(plan.stages), at::kCPU);
  {
    LocalPipeline strategy(*model, plan, cuts, devices, {.autocast = wanted.autocast});
    const auto losses = TrainWith(strategy, wanted);
    const Result expected = TrainUnsplit(wanted, 0);
    ExpectSame(expected, losses);
    ExpectSameParameters(*expected.model, *model);
    strategy.Evaluate();
    const at::Tensor images = BatchOf(wanted, 0, 0).images;
    ExpectSameScores(*expected.model, strategy.Scores(images), images);
  }
  world->Shutdown();
}

TEST(RankPipeline, TwoStagesTrainAsTheUnsplitModel) { ExpectRanksTrainAsUnsplit({}); }
TEST(RankPipeline, TwoStagesOfGpipeDoToo) {
  ExpectRanksTrainAsUnsplit({.schedule = PipelineSchedule::kGpipe});
}
TEST(RankPipeline, ThreeStagesDoToo) {
  ExpectRanksTrainAsUnsplit({.shared_blocks = false, .stages = 3});
}
TEST(RankPipeline, FourStagesDoToo) {
  ExpectRanksTrainAsUnsplit({.shared_blocks = false, .stages = 4});
}
TEST(RankPipeline, ResNet18InTwoStagesDoesToo) {
  ExpectRanksTrainAsUnsplit({.model = "resnet18", .micro_batches = 2, .batch = 6, .steps = 10});
}
TEST(RankPipeline, OneMicroBatchIsThePlainTraining) {
  ExpectRanksTrainAsUnsplit({.micro_batches = 1});
}
TEST(RankPipeline, TwoModelsOfTwoStagesAverageTheirGradients) {
  ExpectRanksTrainAsUnsplit({.replicas = 2});
}
TEST(RankPipeline, MixedPrecisionTravelsAsItIs) {
  ExpectRanksTrainAsUnsplit({.micro_batches = 1, .steps = 3, .autocast = at::kBFloat16});
}

TEST(LocalPipeline, TwoStagesTrainAsTheUnsplitModel) { ExpectProcessTrainsAsUnsplit({}); }
TEST(LocalPipeline, ThreeStagesOfGpipeDoToo) {
  ExpectProcessTrainsAsUnsplit({.stages = 3, .schedule = PipelineSchedule::kGpipe});
}
TEST(LocalPipeline, FourStagesDoToo) {
  ExpectProcessTrainsAsUnsplit({.shared_blocks = false, .stages = 4});
}
TEST(LocalPipeline, ResNet18InTwoStagesDoesToo) {
  ExpectProcessTrainsAsUnsplit({.model = "resnet18", .micro_batches = 2, .batch = 6, .steps = 10});
}

TEST(LocalPipeline, AStageThatFailsEndsTheStepWithItsOwnError) {
  const Case wanted{.stages = 3};
  const auto model = Make(wanted);
  const std::vector<at::Device> devices(3, at::kCPU);
  LocalPipeline strategy(*model, MakePipelinePlan(ConfigOf(wanted), 1), {0, 1, 2}, devices, {});
  strategy.Train();
  auto batch = BatchOf(wanted, 0, 0);
  batch.labels.fill_(99);  // there are ten classes: the last stage's loss fails
  try {
    strategy.ForwardBackward(batch, true, true);
    ADD_FAILURE() << "a class that is not there was taken";
  } catch (const std::exception& error) {
    EXPECT_THAT(error.what(), HasSubstr("99"));
  }
}

TEST(RankPipeline, ANeighbourThatHasEndedIsNamed) {
  InRanks(2, [](World& world) {
    const Case wanted;
    const auto model = Make(wanted);
    PipelineParallel strategy(world, *model, MakePipelinePlan(ConfigOf(wanted), 2), {0, 1}, {});
    strategy.Train();
    strategy.ForwardBackward(BatchOf(wanted, 0, 0), true, true);
    if (world.rank() == 1) _exit(0);
    try {
      strategy.ForwardBackward(BatchOf(wanted, 0, 1), true, true);
      ADD_FAILURE() << "rank 0 trained on alone";
    } catch (const std::runtime_error& error) {
      EXPECT_THAT(error.what(), AllOf(HasSubstr("stage 1 (rank 1) did not "),
                                      HasSubstr("see what it said last")));
    }
    _exit(testing::Test::HasFailure() ? 1 : 0);  // there is nobody left to take leave of
  });
}

TEST(RankPipeline, ChecksAndSumsAreOverTheRanksOfOneModel) {
  InRanks(4, [](World& world) {
    const Case wanted{.replicas = 2};
    const auto model = Make(wanted);
    PipelineParallel strategy(world, *model, MakePipelinePlan(ConfigOf(wanted), 4), {0, 1}, {});
    // Ranks 0 and 1 share a model, 2 and 3 another one.
    const at::Tensor sum = at::full({}, world.rank(), at::kDouble);
    strategy.SumOverModel(sum);
    EXPECT_EQ(sum.item<double>(), world.rank() < 2 ? 1 : 5);
    const NamedTensors own{{"momentum." + std::to_string(world.rank()), at::full({2, 3}, 7.0)}};
    const NamedTensors all = strategy.Gather(own);
    if (world.rank() == 0) {
      ASSERT_EQ(all.size(), 2u);
      EXPECT_EQ(all[1].first, "momentum.1");
      EXPECT_TRUE(at::equal(all[1].second, at::full({2, 3}, 7.0)));
    }
  });
}

// A rank's steps, as a training makes them: its stage of two, and updates.
struct StagedSteps {
  StagedSteps(World& world, const Config& base)
      : config([&] {
          Config own = base;
          own.dataset = "synthetic";
          own.samples = 16;
          return own;
        }()),
        data(OpenDataset(config.dataset, {.seed = 1, .samples = config.samples, .input_size = 32})),
        model(Make({})),
        strategy(world, *model, MakePipelinePlan(config, 2), {0, 1}, {}),
        parameters(strategy.Parameters()),
        optimizer(MakeOptimizer(config, parameters)),
        scaler(config.amp == Amp::kFp16, world.device()),
        plan({.size = data.train->size(),
              .shard = strategy.shard(),
              .batch_size = config.batch_size,
              .seed = config.seed}),
        step(config,
             {.world = world, .strategy = strategy, .optimizer = *optimizer, .scaler = scaler},
             std::make_unique<LoaderFeed>(config, data, world),
             std::make_unique<StepRecorder>(world)) {
    strategy.Train();
    step.BeginEpoch(plan);
  }

  StepResult MakeStep(std::int64_t number) {
    return step.MakeStep({.first = number - 1, .count = 1}, /*rate=*/0.05, number);
  }

  std::vector<at::Tensor> Values() const {
    std::vector<at::Tensor> values;
    for (const auto& entry : parameters) values.push_back(entry.second.detach().clone());
    return values;
  }

  const Config config;
  const Dataset data;
  const std::shared_ptr<ImageModel> model;
  PipelineParallel strategy;
  const NamedTensors parameters;
  const std::unique_ptr<Optimizer> optimizer;
  GradScaler scaler;
  const EpochPlan plan;
  TrainingLoop step;
};

TEST(RankPipeline, AnOverflowInOneStageSkipsTheStepOfAll) {
  InRanks(2, [](World& world) {
    Config config = ConfigOf({});
    config.amp = Amp::kFp16;  // the scale; a CPU computes in floats all the same
    StagedSteps steps(world, config);
    bool overflows = true;
    // In one gradient of the last stage, which the other rank does not see.
    if (world.rank() == 1) {
      steps.parameters.front().second.register_hook(
          [&](const at::Tensor& gradient) { return overflows ? gradient / 0.0 : gradient; });
    }
    const auto before = steps.Values();
    steps.MakeStep(1);
    const auto skipped = steps.Values();
    for (std::size_t i = 0; i < before.size(); ++i)
      EXPECT_TRUE(at::equal(skipped[i], before[i])) << steps.parameters[i].first;
    EXPECT_EQ(steps.scaler.state().scale, GradScaler::kInitialScale * GradScaler::kBackoff);
    overflows = false;
    steps.MakeStep(2);
    EXPECT_FALSE(at::equal(steps.Values().front(), before.front()));
    EXPECT_EQ(steps.scaler.state().scale, GradScaler::kInitialScale * GradScaler::kBackoff);
  });
}

TEST(RankPipeline, GradientsAreClippedByTheNormOfTheWholeModel) {
  InRanks(2, [](World& world) {
    Config config = ConfigOf({});
    config.clip_norm = 1e9;  // which leaves the gradients as they are
    StagedSteps steps(world, config);
    const StepResult result = steps.MakeStep(1);
    at::Tensor squared = at::zeros({}, at::kDouble);
    for (const auto& entry : steps.parameters)
      squared.add_(entry.second.grad().to(at::kDouble).square().sum());
    const double own = squared.item<double>();
    world.AllReduceSum(squared);
    EXPECT_GT(squared.item<double>(), own) << "the other stage has gradients as well";
    const double norm = std::sqrt(squared.item<double>());
    EXPECT_NEAR(result.gradient_norm.item<double>(), norm, 1e-4 * norm);
  });
}

std::string MessageOf(const std::function<void()>& action) {
  try {
    action();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST(PipelinePlan, WhatCannotBeSplitIsOneSentence) {
  Config config;
  config.pipeline = 2;
  EXPECT_THAT(MessageOf([&] { MakePipelinePlan(config, 3); }),
              AllOf(HasSubstr("--pipeline 2"), HasSubstr("there are 3"), HasSubstr("start 4")));
  config.batch_size = 4;
  config.micro_batches = 5;
  EXPECT_THAT(MessageOf([&] { MakePipelinePlan(config, 2); }), HasSubstr("--micro-batches 5"));
  config.micro_batches = 0;
  EXPECT_EQ(MakePipelinePlan(config, 2).micro_batches, 4);
  config.batch_size = 64;
  EXPECT_EQ(MakePipelinePlan(config, 4).micro_batches, 8);
  EXPECT_EQ(DataParallelSize(config, 4), 2);
  EXPECT_EQ(DataParallelSize(config, 1), 1);
  config.pipeline = 2;
  config.sync_batch_norm = true;
  EXPECT_THAT(MessageOf([&] { MakePipelinePlan(config, 4); }), HasSubstr("--sync-batch-norm"));
  config.sync_batch_norm = false;
  const auto world = World::Join(WorkerEnv{}, {.backend = BackendChoice::kGloo});
  config.pipeline = 4;
  const auto model = Make({});
  EXPECT_THAT(MessageOf([&] {
                ChooseCuts(config, MakePipelinePlan(config, 1), *world, *model, {3, 32, 32});
              }),
              AllOf(HasSubstr("the 3 parts that --model netresdeep"), HasSubstr("at most")));
  world->Shutdown();
}

}  // namespace
}  // namespace ddprun
