// SPDX-License-Identifier: Apache-2.0
// What libddprun has beyond data parallelism, in worlds of several processes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <filesystem>
#include <iterator>
#include <thread>
#include <tuple>
#include <utility>

#include "ddprun/ddprun.h"
#include "ddprun/detail/interrupt.h"
#include "tests/integration/worker/in_world.h"
#include "tests/integration/worker/small_net.h"
#include "worker/library/core/optimizer_state.h"

namespace ddprun {
namespace {

using testing::ElementsAre;

// Forward, backward and running statistics are those of one batch norm over the batches of all
// ranks, which differ in size.
TEST(Library, SyncBatchNormIsThatOfTheWholeBatch) {
  InWorld(2, [](World& world) {
    const at::Tensor whole = Random({7, 4, 3, 2}, 5) * 3 + 100;
    const at::Tensor own =
        (world.rank() == 0 ? whole.narrow(0, 0, 2) : whole.narrow(0, 2, 5)).clone();
    torch::nn::BatchNorm2d expected(4);
    SyncBatchNorm norm(world, 4);
    at::Tensor all_input = whole.clone().requires_grad_(), own_input = own.requires_grad_();
    const at::Tensor weights = Random({7, 4, 3, 2}, 6);
    (expected(all_input) * weights).sum().backward();
    const at::Tensor own_weights =
        world.rank() == 0 ? weights.narrow(0, 0, 2) : weights.narrow(0, 2, 5);
    const at::Tensor output = norm(own_input);
    (output * own_weights).sum().backward();
    const at::Tensor gradient =
        world.rank() == 0 ? all_input.grad().narrow(0, 0, 2) : all_input.grad().narrow(0, 2, 5);
    EXPECT_TRUE(at::allclose(own_input.grad(), gradient, 1e-3, 1e-5));
    at::Tensor weight_gradient = norm->weight.grad().clone();
    world.AllReduceSum(weight_gradient);
    EXPECT_TRUE(at::allclose(weight_gradient, expected->weight.grad(), 1e-3, 1e-4));
    EXPECT_TRUE(at::allclose(norm->running_mean, expected->running_mean));
    EXPECT_TRUE(at::allclose(norm->running_var, expected->running_var, 1e-4));
    EXPECT_EQ(norm->num_batches_tracked.item<int>(), 1);
    norm->eval();
    expected->eval();
    EXPECT_TRUE(at::allclose(norm(whole), expected(whole), 1e-4, 1e-4));
    EXPECT_THROW(norm(at::zeros({2, 5})), std::invalid_argument);
  });
}

TEST(Library, ZeroRedundancyOptimizerMakesTheStepsOfTheWholeOptimizer) {
  InWorld(3, [](World& world) {
    auto net = Net(), other = Net();
    DistributedDataParallel ddp(world, *net), other_ddp(world, *other);
    const auto options = torch::optim::AdamWOptions(0.01);
    ZeroRedundancyOptimizer<torch::optim::AdamW> optimizer(world, net->parameters(), options);
    torch::optim::AdamW whole(other->parameters(), options);
    for (std::uint64_t step = 0; step < 5; ++step) {
      const at::Tensor batch = Random({4, 6}, 10 * step + static_cast<std::uint64_t>(world.rank()));
      ddp.Forward([&] { return net->forward(batch); }).square().mean().backward();
      other_ddp.Forward([&] { return other->forward(batch); }).square().mean().backward();
      optimizer.step();
      whole.step();
      optimizer.zero_grad();
      other_ddp.ZeroGrad();
    }
    EXPECT_EQ(LargestDifference(*net, *other), 0);
    const NamedTensors gathered = GatherOptimizerState(optimizer);
    const NamedTensors expected = ReadOptimizerState(whole);
    if (world.rank() != 0) {
      EXPECT_TRUE(gathered.empty());
      return;
    }
    ASSERT_EQ(gathered.size(), expected.size());
    for (const auto& [name, value] : expected) {
      const auto same = std::find_if(gathered.begin(), gathered.end(),
                                     [&](const auto& each) { return each.first == name; });
      ASSERT_NE(same, gathered.end()) << name;
      EXPECT_TRUE(at::equal(same->second, value)) << name;
    }
  });
}

TEST(Library, ParametersAreDividedEvenly) {
  const std::vector<at::Tensor> parameters = {at::zeros({10}), at::zeros({100}), at::zeros({60}),
                                              at::zeros({40})};
  EXPECT_THAT(DivideAmongRanks(parameters, 2), ElementsAre(0, 0, 1, 1));
  EXPECT_THAT(DivideAmongRanks(parameters, 1), ElementsAre(0, 0, 0, 0));
}

// Each rank leaves out another parameter: a gradient is the average over all ranks.
TEST(Library, UnusedParametersAreFoundAndOutputsMayBeSeveral) {
  InWorld(2, [](World& world) {
    struct Two : torch::nn::Module {
      torch::nn::Linear a{register_module("a", torch::nn::Linear(3, 1))};
      torch::nn::Linear b{register_module("b", torch::nn::Linear(3, 1))};
    };
    torch::manual_seed(2);
    Two net;
    DistributedDataParallel ddp(world, net, {.find_unused_parameters = true});
    const at::Tensor input = Random({4, 3}, 3);
    for (int step = 0; step < 3; ++step) {
      const auto [output, same] = ddp.Forward([&] {
        const at::Tensor made = world.rank() == 0 ? net.a(input) : net.b(input);
        return std::make_tuple(made, std::vector<at::Tensor>{made * 2});
      });
      (output.sum() + same[0].sum()).backward();
      const at::Tensor expected = input.sum(0, true) * 3 / 2;
      EXPECT_TRUE(at::allclose(net.a->weight.grad(), expected)) << step;
      EXPECT_TRUE(at::allclose(net.b->weight.grad(), expected)) << step;
      ddp.ZeroGrad();
    }
  });
}

TEST(Library, GradientsMayBeCopies) {
  InWorld(2, [](World& world) {
    auto net = Net();
    DistributedDataParallel ddp(world, *net, {.gradient_views = false});
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    for (std::uint64_t step = 0; step < 3; ++step) {
      const at::Tensor batch = Random({4, 6}, step + 10 * static_cast<std::uint64_t>(world.rank()));
      ddp.Forward([&] { return net->forward(batch); }).square().mean().backward();
      optimizer.step();
      optimizer.zero_grad();
    }
    for (const at::Tensor& parameter : net->parameters()) {
      at::Tensor copy = parameter.detach().clone();
      world.Broadcast(copy, 0);
      EXPECT_TRUE(at::equal(copy, parameter));
    }
  });
}

// Work that rank 1 has no part in ends for rank 0 when the round does: also a receive of Gloo's,
// which has no future.
TEST(Library, WaitsForOwnCollectivesEndWithTheRound) {
  std::unique_ptr<Service> service;
  if (!IsRankProcess()) service = std::make_unique<Service>();
  RunProcesses(
      2, [&](int rank) { return service->EnvOf(rank, 2); },
      [](const WorkerEnv& env) {
        const auto interrupt = std::make_shared<Interrupt>();
        const auto world =
            World::Join(env, {.backend = BackendChoice::kGloo, .interrupt = interrupt});
        std::vector<at::Tensor> message{at::full({3}, world->rank(), at::kFloat)};
        const int other = 1 - world->rank();
        if (world->rank() == 1) {
          Await(*world, world->group()->send(message, other, /*tag=*/0));
          world->store()->get("rank 0 is done");
          return;
        }
        Await(*world, world->group()->recv(message, other, /*tag=*/0));
        EXPECT_EQ(message[0].sum().item<float>(), 3);
        const auto receive = world->group()->recv(message, other, /*tag=*/1);
        const auto reduce = world->group()->allreduce(message);
        std::thread agent([&] { interrupt->Trigger(); });
        EXPECT_THROW(Await(*world, receive), RoundOver);
        EXPECT_THROW(Await(*world, reduce), RoundOver);
        agent.join();
        world->store()->set("rank 0 is done", "");
      });
}

// Over a sampler's copies, in two worlds: what is left of an epoch is shared out among more ranks.
TEST(Library, EpochSamplerGivesEachSampleOnce) {
  InWorld(3, [](World& world) {
    TrainingPosition position{.step = 4, .epoch = 1, .consumed = 40};
    const EpochSampler::Options options{.batch_size = 4, .seed = 7, .position = position};
    EpochSampler sampler(world, 101, options);
    EpochSampler reader = sampler;
    at::Tensor times = at::zeros({101}, at::kLong);
    double weights = 0;
    while (const auto batch = reader.next(4)) {
      const double weight = sampler.LossWeight();
      weights += weight;
      for (const std::size_t index : *batch) {
        if (weight > 0) times[static_cast<std::int64_t>(index)] += 1;
      }
      sampler.Advance(position);
    }
    EXPECT_EQ(position.consumed, 101);
    EXPECT_EQ(position.step, 4 + sampler.batches());
    world.AllReduceSum(times);
    EXPECT_EQ(times.max().item<int>(), 1);
    EXPECT_EQ(times.sum().item<int>(), 61);
    at::Tensor sum = at::scalar_tensor(weights, at::kDouble);
    world.AllReduceSum(sum);
    EXPECT_NEAR(sum.item<double>(), 3.0 * static_cast<double>(sampler.batches()), 1e-9);
    EXPECT_THROW(sampler.next(5), std::invalid_argument);
  });
}

// The last of 15 samples for two ranks: one has a full batch of 4 or 8, and the other lacks one.
TEST(Library, RanksDropTheSameBatches) {
  InWorld(2, [](World& world) {
    for (const auto& [batch_size, kept] : {std::pair{4, 1}, std::pair{7, 1}, std::pair{8, 0}}) {
      const EpochSampler sampler(world, 15, {.batch_size = batch_size});
      const auto options = torch::data::DataLoaderOptions().batch_size(batch_size).drop_last(true);
      const auto loader = torch::data::make_data_loader(
          Numbers().map(torch::data::transforms::Stack<>()), sampler, options);
      EXPECT_EQ(std::distance(loader->begin(), loader->end()), kept)
          << "rank " << world.rank() << ", batches of " << batch_size;
    }
  });
}

template <typename Optimizer, typename Options>
void ExpectStateComesBack(const Options& options) {
  auto net = Net(), other = Net();
  Optimizer optimizer(net->parameters(), options), fresh(other->parameters(), options);
  const auto step = [](auto& module, auto& by, std::uint64_t seed) {
    by.zero_grad();
    module->forward(Random({4, 6}, seed)).square().mean().backward();
    by.step();
  };
  for (std::uint64_t i = 0; i < 3; ++i) step(net, optimizer, i);
  optimizer.param_groups()[0].options().set_lr(0.02);
  for (std::size_t i = 0; i < net->parameters().size(); ++i) {
    const torch::NoGradGuard no_grad;
    other->parameters()[i].copy_(net->parameters()[i]);
  }
  WriteOptimizerState(fresh, ReadOptimizerState(optimizer));
  EXPECT_EQ(fresh.param_groups()[0].options().get_lr(), 0.02);
  for (std::uint64_t i = 3; i < 6; ++i) {
    step(net, optimizer, i);
    step(other, fresh, i);
  }
  EXPECT_EQ(LargestDifference(*net, *other), 0);
}

TEST(Library, StateOfEachOptimizerComesBack) {
  ExpectStateComesBack<torch::optim::SGD>(torch::optim::SGDOptions(0.1).momentum(0.9));
  ExpectStateComesBack<torch::optim::Adam>(torch::optim::AdamOptions(0.1).amsgrad(true));
  ExpectStateComesBack<torch::optim::AdamW>(torch::optim::AdamWOptions(0.1));
  ExpectStateComesBack<torch::optim::RMSprop>(
      torch::optim::RMSpropOptions(0.1).momentum(0.5).centered(true));
  ExpectStateComesBack<torch::optim::Adagrad>(torch::optim::AdagradOptions(0.1));
  auto net = Net();
  torch::optim::LBFGS unknown(net->parameters());
  EXPECT_THROW(ReadOptimizerState(unknown), std::invalid_argument);
  torch::optim::SGD sgd(net->parameters(), 0.1);
  EXPECT_THROW(WriteOptimizerState(sgd, {{"0/exp_avg", at::zeros({8, 6})}}), CheckpointError);
  EXPECT_THROW(WriteOptimizerState(sgd, {{"9/momentum_buffer", at::zeros({1})}}), CheckpointError);
  EXPECT_THROW(WriteOptimizerState(sgd, {{"momentum", at::zeros({1})}}), CheckpointError);
}

TEST(Library, CheckpointsThatCannotBeAreRefused) {
  InWorld(1, [](World& world) {
    EXPECT_THROW(Checkpoints(world, {.every_steps = -1}), std::invalid_argument);
    EXPECT_THROW(Checkpoints(world, {.keep = 0}), std::invalid_argument);
    Checkpoints saved(world, {.stop_on_signals = false});
    EXPECT_THROW((void)saved.EndStep({}), std::logic_error);
    EXPECT_THROW(saved.Finish({}), std::logic_error);
    auto net = Net();
    EXPECT_THROW(saved.Track("a/b", *net), std::invalid_argument);
    EXPECT_THROW(saved.Track("", *net), std::invalid_argument);
  });
}

// Else one rank would wait in a save that another one does not make.
TEST(Library, RanksWithOtherCheckpointsAreTold) {
  InWorld(2, [](World& world) {
    double best = 0;
    Checkpoints saved(world, {.stop_on_signals = false});
    if (world.rank() == 1) saved.Track("best", best);
    try {
      saved.Resume();
      FAIL() << "rank " << world.rank() << " goes on";
    } catch (const std::invalid_argument& error) {
      EXPECT_THAT(error.what(),
                  testing::HasSubstr(world.rank() == 0 ? "rank 0 tracks nothing"
                                                       : "rank 1 tracks best and saves nothing, "
                                                         "whatever signals come, but rank 0 tracks "
                                                         "nothing"));
    }
  });
}

// What was empty when it was saved is no sign of another program.
TEST(Library, ThingsThatHaveNothingYetComeBack) {
  InWorld(1, [](World& world) {
    const std::string folder = testing::TempDir() + "ddprun-empty-" + std::to_string(getpid());
    for (int run = 0; run < 2; ++run) {
      double best = 0;
      Checkpoints saved(world, {.folder = folder, .stop_on_signals = false});
      saved.Track("best", best);
      saved.Track(
          "queue", [] { return Checkpoints::Tensors(); }, [](const Checkpoints::Tensors&) {});
      const TrainingPosition at = saved.Resume();
      EXPECT_EQ(at.step, run);
      EXPECT_EQ(best, run);
      best = 1;
      saved.Finish({.step = 1});
    }
    std::filesystem::remove_all(folder);
  });
}

// Three ranks save; two go on, with sharded state divided anew, numbers, and the place.
TEST(Library, CheckpointsGoOnWithAnotherNumberOfRanks) {
  std::string folder;
  const auto train = [&folder](World& world, std::int64_t until) {
    auto net = Net();
    DistributedDataParallel ddp(world, *net);
    ZeroRedundancyOptimizer<torch::optim::Adam> optimizer(world, net->parameters(),
                                                          torch::optim::AdamOptions(0.01));
    std::int64_t seen = 0;
    double best = 0;
    Checkpoints saved(world, {.folder = folder, .every_steps = 2, .stop_on_signals = false});
    saved.Track("model", *net);
    saved.Track("optimizer", optimizer);
    saved.Track("seen", seen);
    saved.Track("best", best);
    EXPECT_THROW(saved.Track("best", best), std::invalid_argument);
    TrainingPosition at = saved.Resume();
    const std::int64_t begin = at.step;
    while (at.step < until) {
      // The same on all ranks: their number must not matter.
      const at::Tensor batch = Random({4, 6}, static_cast<std::uint64_t>(at.step));
      ddp.Forward([&] { return net->forward(batch); }).square().mean().backward();
      optimizer.step();
      optimizer.zero_grad();
      ++at.step;
      seen += 3;
      best = 0.5 * static_cast<double>(at.step);
      EXPECT_FALSE(saved.EndStep(at));
    }
    EXPECT_EQ(seen, 3 * at.step);
    EXPECT_EQ(best, 0.5 * static_cast<double>(at.step));
    return std::make_tuple(begin, net, at);
  };
  InWorld(3, [&](World& world) {
    folder = world.BroadcastText(testing::TempDir() + "ddprun-library-" + std::to_string(getpid()));
    EXPECT_EQ(std::get<0>(train(world, 5)), 0);
    if (world.rank() == 2) return;
    World& two = world.Subgroup("two", {0, 1});
    const auto [begin, net, at] = train(two, 8);
    EXPECT_EQ(begin, 4);
    auto expected = Net();
    torch::optim::Adam optimizer(expected->parameters(), torch::optim::AdamOptions(0.01));
    for (std::uint64_t step = 0; step < 8; ++step) {
      optimizer.zero_grad();
      expected->forward(Random({4, 6}, step)).square().mean().backward();
      optimizer.step();
    }
    EXPECT_LT(LargestDifference(*net, *expected), 1e-6);
    two.Barrier();
    if (world.rank() == 0) std::filesystem::remove_all(folder);
  });
}

}  // namespace
}  // namespace ddprun
