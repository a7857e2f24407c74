// SPDX-License-Identifier: Apache-2.0
#include "ddprun/distributed_data_parallel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "tests/integration/worker/in_world.h"
#include "tests/integration/worker/seeded.h"

namespace ddprun {
namespace {

using testing::HasSubstr;

// Convolution, batch norm (buffers, one of them an int64 scalar) and a linear layer.
struct NetImpl : torch::nn::Module {
  explicit NetImpl(int64_t classes = 3) {
    register_module("conv", conv = torch::nn::Conv2d(torch::nn::Conv2dOptions(2, 4, 3)));
    register_module("norm", norm = torch::nn::BatchNorm2d(4));
    register_module("head", head = torch::nn::Linear(4 * 2 * 2, classes));
  }
  at::Tensor forward(const at::Tensor& input) {
    return head(torch::relu(norm(conv(input))).flatten(1));
  }
  torch::nn::Conv2d conv{nullptr};
  torch::nn::BatchNorm2d norm{nullptr};
  torch::nn::Linear head{nullptr};
};
TORCH_MODULE(Net);

at::Tensor BatchOf(int rank, int step) {
  return at::randn({5, 2, 4, 4}, GeneratorOf(1000 + 10 * step + rank), at::TensorOptions());
}

at::Tensor Loss(Net& net, const at::Tensor& batch) { return net->forward(batch).square().mean(); }

// Rank 0's copy, to compare with on every rank.
at::Tensor OfRankZero(World& world, const at::Tensor& tensor) {
  at::Tensor copy = tensor.detach().clone();
  world.Broadcast(copy, 0);
  return copy;
}

void ExpectSameOnAllRanks(World& world, const torch::nn::Module& module) {
  for (const auto& item : module.named_parameters()) {
    EXPECT_TRUE(at::equal(OfRankZero(world, item.value()), item.value())) << item.key();
  }
}

TEST(Ddp, DifferentInitialModelsBecomeRankZeros) {
  InWorld(2, [](World& world) {
    Net net;
    Fill(*net, /*seed=*/world.rank());
    net->norm->running_mean.fill_(world.rank() + 1);
    const DistributedDataParallel ddp(world, *net, {});
    Net expected;
    Fill(*expected, /*seed=*/0);
    EXPECT_TRUE(at::equal(net->conv->weight, expected->conv->weight));
    EXPECT_TRUE(at::equal(net->head->bias, expected->head->bias));
    EXPECT_TRUE(at::equal(net->norm->running_mean, at::ones({4})));
  });
}

TEST(Ddp, GradientsAreTheMeanOfTheRanksGradients) {
  InWorld(2, [](World& world) {
    Net net;
    Fill(*net, 0);
    DistributedDataParallel ddp(world, *net, {});
    // What one process computes alone for each rank's batch.
    std::vector<at::Tensor> expected;
    for (int rank = 0; rank < 2; ++rank) {
      Net alone;
      Fill(*alone, 0);
      Loss(alone, BatchOf(rank, 0)).backward();
      const auto parameters = alone->parameters();
      for (std::size_t i = 0; i < parameters.size(); ++i) {
        if (rank == 0)
          expected.push_back(parameters[i].grad() / 2);
        else
          expected[i] += parameters[i].grad() / 2;
      }
    }
    ddp.Forward([&] { return Loss(net, BatchOf(world.rank(), 0)); }).backward();
    const auto parameters = net->parameters();
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      EXPECT_TRUE(at::allclose(parameters[i].grad(), expected[i], 1e-5, 1e-7)) << "parameter " << i;
    }
  });
}

void Train(World& world, Net& net, DistributedDataParallel& ddp, int steps) {
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));
  for (int step = 0; step < steps; ++step) {
    ddp.ZeroGrad();
    ddp.Forward([&] { return Loss(net, BatchOf(world.rank(), step)); }).backward();
    optimizer.step();
  }
}

TEST(Ddp, ParametersStayEqualOverStepsWithManySmallBuckets) {
  InWorld(3, [](World& world) {
    Net net;
    Fill(*net, world.rank());
    const at::Tensor before = OfRankZero(world, net->head->weight);
    DistributedDataParallel ddp(world, *net, {.bucket_bytes = 64, .first_bucket_bytes = 16});
    Train(world, net, ddp, 4);
    ExpectSameOnAllRanks(world, *net);
    EXPECT_FALSE(at::allclose(net->head->weight, before));
  });
}

TEST(Ddp, GradientsAreViewsOfTheBucketsAfterZeroGradToo) {
  InWorld(2, [](World& world) {
    Net net;
    DistributedDataParallel ddp(world, *net, {});
    Train(world, net, ddp, 3);
    // All of this small net's gradients lie in one bucket.
    EXPECT_TRUE(net->head->weight.grad().is_alias_of(net->conv->weight.grad()));
  });
}

TEST(Ddp, BuffersAreRankZerosAtEachTrainingForward) {
  InWorld(2, [](World& world) {
    Net net;
    DistributedDataParallel ddp(world, *net, {});
    ddp.Forward([&] { return Loss(net, BatchOf(world.rank(), 0)); }).backward();
    // Each rank has seen another batch.
    EXPECT_EQ(at::equal(OfRankZero(world, net->norm->running_mean), net->norm->running_mean),
              world.rank() == 0);
    at::Tensor at_start;
    ddp.Forward([&] {
         at_start = net->norm->running_mean.clone();
         return Loss(net, BatchOf(world.rank(), 1));
       })
        .backward();
    EXPECT_TRUE(at::equal(OfRankZero(world, at_start), at_start));
    EXPECT_EQ(net->norm->num_batches_tracked.item<int64_t>(), 2);
  });
}

TEST(Ddp, WithoutBufferBroadcastEachRankKeepsItsOwn) {
  InWorld(2, [](World& world) {
    Net net;
    DistributedDataParallel ddp(world, *net, {.broadcast_buffers = false});
    Train(world, net, ddp, 2);
    EXPECT_EQ(at::equal(OfRankZero(world, net->norm->running_mean), net->norm->running_mean),
              world.rank() == 0);
  });
}

TEST(Ddp, EvaluationCommunicatesNothing) {
  InWorld(2, [](World& world) {
    Net net;
    DistributedDataParallel ddp(world, *net, {});
    net->eval();
    // Only one rank evaluates: were anything sent, it would wait for the other until the time is
    // over.
    if (world.rank() == 1) {
      const torch::NoGradGuard no_grad;
      EXPECT_EQ(ddp.Forward([&] { return net->forward(BatchOf(1, 0)); }).size(0), 5);
    }
  });
}

TEST(Ddp, ChannelsLastParametersKeepTheirFormat) {
  InWorld(2, [](World& world) {
    Net net;
    Fill(*net, world.rank());
    net->conv->weight.set_data(net->conv->weight.contiguous(at::MemoryFormat::ChannelsLast));
    DistributedDataParallel ddp(world, *net, {});
    Train(world, net, ddp, 3);
    EXPECT_TRUE(net->conv->weight.is_contiguous(at::MemoryFormat::ChannelsLast));
    ExpectSameOnAllRanks(world, *net);
  });
}

// One layer under two names, as netresdeep's shared block is.
struct SharedImpl : torch::nn::Module {
  SharedImpl() {
    register_module("first", layer = torch::nn::Linear(4, 4));
    register_module("again", layer);
  }
  torch::nn::Linear layer{nullptr};
};

TEST(Ddp, AModuleThatIsRegisteredTwiceIsTakenOnce) {
  InWorld(2, [](World& world) {
    SharedImpl net;
    Fill(net, world.rank());
    DistributedDataParallel ddp(world, net, {});
    ddp.Forward([&] { return net.layer(net.layer(BatchOf(world.rank(), 0))).square().mean(); })
        .backward();
    const at::Tensor gradient = net.layer->weight.grad();
    EXPECT_TRUE(at::equal(OfRankZero(world, gradient), gradient));
    ExpectSameOnAllRanks(world, net);
  });
}

TEST(Ddp, AWorldOfOneTrains) {
  const auto world = World::Join(WorkerEnv{}, {.backend = BackendChoice::kGloo});
  Net net;
  Fill(*net, 0);
  const at::Tensor before = net->head->weight.detach().clone();
  DistributedDataParallel ddp(*world, *net, {});
  Train(*world, net, ddp, 2);
  EXPECT_FALSE(at::allclose(net->head->weight, before));
  world->Shutdown();
}

TEST(Ddp, ModelsThatDifferInSizeAreAnErrorOnEveryRank) {
  InWorld(2, [](World& world) {
    Net net(/*classes=*/3 + world.rank());
    try {
      const DistributedDataParallel ddp(world, *net, {});
      ADD_FAILURE() << "rank " << world.rank() << " took another rank's model";
    } catch (const c10::Error& error) {
      EXPECT_THAT(error.what_without_backtrace(), HasSubstr("the ranks' models differ"));
    }
  });
}

TEST(Ddp, ModelsThatDifferInBuffersAreAnError) {
  InWorld(2, [](World& world) {
    Net net;
    if (world.rank() == 1) net->register_buffer("extra", at::zeros({2}));
    EXPECT_THROW(DistributedDataParallel(world, *net, {}), c10::Error);
  });
}

TEST(Ddp, AModelWithoutParametersIsAnError) {
  const auto world = World::Join(WorkerEnv{}, {.backend = BackendChoice::kGloo});
  torch::nn::ReLU relu;
  EXPECT_THROW(DistributedDataParallel(*world, *relu, {}), c10::Error);
  world->Shutdown();
}

}  // namespace
}  // namespace ddprun
