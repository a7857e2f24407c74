// SPDX-License-Identifier: Apache-2.0
// How gradients go from rank to rank: through shared memory, through Gloo, and with 16 bits.
#include <dirent.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <torch/torch.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <random>
#include <thread>

#include "ddprun/detail/shm_notes.h"
#include "ddprun/distributed_data_parallel.h"
#include "tests/integration/worker/ranks.h"
#include "tests/integration/worker/seeded.h"
#include "tests/integration/worker/service.h"
#include "worker/library/ddp/shm_group.h"

namespace ddprun {
namespace {

using testing::HasSubstr;

constexpr int kWide = 200;

struct NetImpl : torch::nn::Module {
  NetImpl() {
    register_module("hidden", hidden = torch::nn::Linear(7, kWide));
    register_module("head", head = torch::nn::Linear(kWide, 3));
  }
  at::Tensor forward(const at::Tensor& input) { return head(torch::tanh(hidden(input))); }
  torch::nn::Linear hidden{nullptr};
  torch::nn::Linear head{nullptr};
};
TORCH_MODULE(Net);

at::Tensor LossOf(Net& net, int rank, int step) {
  const at::Tensor batch =
      at::randn({5, 7}, GeneratorOf(1000 + 10 * step + rank), at::TensorOptions());
  return net->forward(batch).square().mean();
}

void InWorld(int size, const std::function<void(World&)>& body,
             std::chrono::seconds timeout = std::chrono::seconds(20)) {
  std::unique_ptr<Service> service;
  if (!IsRankProcess()) service = std::make_unique<Service>();
  RunProcesses(
      size, [&](int rank) { return service->EnvOf(rank, size); },
      [&](const WorkerEnv& env) {
        const auto world = World::Join(env, {.backend = BackendChoice::kGloo, .timeout = timeout});
        body(*world);
      });
}

// Three steps from the same parameters; several buckets in the last two.
using Clear = std::function<void(DistributedDataParallel&, torch::optim::Optimizer&)>;
Net Trained(
    World& world, DistributedDataParallel::Options options, bool* shared = nullptr,
    GradientTraffic* traffic = nullptr,
    const Clear& clear = [](auto& ddp, auto&) { ddp.ZeroGrad(); }) {
  Net net;
  Fill(*net, 0);
  options.bucket_bytes = 2048;
  options.first_bucket_bytes = 16;
  DistributedDataParallel ddp(world, *net, options);
  if (shared != nullptr) *shared = ddp.uses_shared_memory();
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));
  for (int step = 0; step < 3; ++step) {
    clear(ddp, optimizer);
    ddp.Forward([&] { return LossOf(net, world.rank(), step); }).backward();
    optimizer.step();
  }
  if (traffic != nullptr) *traffic = ddp.traffic();
  return net;
}

void ExpectEqual(Net& one, Net& other) {
  for (const auto& item : one->named_parameters())
    EXPECT_TRUE(at::equal(item.value(), other->named_parameters()[item.key()])) << item.key();
}

double Distance(Net& one, Net& other) {
  double largest = 0;
  for (const auto& item : one->named_parameters()) {
    const at::Tensor difference = item.value() - other->named_parameters()[item.key()];
    largest = std::max(largest, difference.abs().max().item<double>());
  }
  return largest;
}

void ExpectSameOnAllRanks(World& world, Net& net) {
  for (const auto& item : net->named_parameters()) {
    at::Tensor first = item.value().detach().clone();
    world.Broadcast(first, 0);
    EXPECT_TRUE(at::equal(first, item.value())) << item.key();
  }
}

TEST(SharedGradients, GiveTheBitsThatGlooGives) {
  InWorld(2, [](World& world) {
    bool shared = false;
    Net by_memory = Trained(world, {}, &shared);
    EXPECT_TRUE(shared);
    Net by_gloo = Trained(world, {.shared_memory = false}, &shared);
    EXPECT_FALSE(shared);
    ExpectEqual(by_memory, by_gloo);
    world.Shutdown();
  });
}

TEST(SharedGradients, AreTheSameOnThreeRanks) {
  InWorld(3, [](World& world) {
    bool shared = false;
    Net by_memory = Trained(world, {}, &shared);
    EXPECT_TRUE(shared);
    ExpectSameOnAllRanks(world, by_memory);
    // Gloo adds in another order.
    Net by_gloo = Trained(world, {.shared_memory = false});
    EXPECT_LT(Distance(by_memory, by_gloo), 1e-6);
    world.Shutdown();
  });
}

// With the first of these limits there are more buckets than with the second.
constexpr std::int64_t kSmall = 512;
constexpr std::int64_t kLarge = 1 << 20;

// Some steps in buckets of so many bytes, from `net` on.
BucketLayout TrainSteps(World& world, Net& net, std::int64_t bucket_bytes, bool shared_memory,
                        int first, int end, const BucketLayout& layout) {
  DistributedDataParallel ddp(world, *net,
                              {.bucket_bytes = bucket_bytes,
                               .shared_bucket_bytes = bucket_bytes,
                               .first_bucket_bytes = 16,
                               .shared_memory = shared_memory});
  ddp.UseLayout(layout);
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.05));
  for (int step = first; step < end; ++step) {
    ddp.ZeroGrad();
    ddp.Forward([&] { return LossOf(net, world.rank(), step); }).backward();
    ddp.EndBackward();
    optimizer.step();
  }
  return ddp.Layout();
}

class BucketLayouts : public testing::TestWithParam<bool> {};

// As from a checkpoint: with the layout of the steps before the bits are those of one run.
TEST_P(BucketLayouts, MakeTheFirstStepOfARestartLikeAllOthers) {
  InWorld(3, [](World& world) {
    Net whole;
    Fill(*whole, 0);
    const BucketLayout layout = TrainSteps(world, whole, kSmall, GetParam(), 0, 12, {});
    EXPECT_GT(layout.size(), 1u);
    Net resumed;
    Fill(*resumed, 0);
    EXPECT_EQ(TrainSteps(world, resumed, kSmall, GetParam(), 0, 1, {}), layout);
    for (int step = 1; step < 11; ++step)
      EXPECT_EQ(TrainSteps(world, resumed, kSmall, GetParam(), step, step + 1, layout), layout);
    EXPECT_EQ(TrainSteps(world, resumed, kSmall, GetParam(), 11, 11, layout), layout);
    TrainSteps(world, resumed, kSmall, GetParam(), 11, 12, layout);
    ExpectEqual(resumed, whole);
    world.Shutdown();
  });
}

TEST_P(BucketLayouts, OfOtherLimitsOrParametersAreLeft) {
  InWorld(2, [](World& world) {
    Net net;
    Fill(*net, 0);
    const BucketLayout layout = TrainSteps(world, net, kSmall, GetParam(), 0, 1, {});
    EXPECT_EQ(TrainSteps(world, net, kLarge, GetParam(), 0, 0, layout), BucketLayout());
    const BucketLayout others = TrainSteps(world, net, kLarge, GetParam(), 0, 2, layout);
    EXPECT_NE(others, layout);
    const BucketLayout no_layouts[] = {{}, {{}}, {{0, 0, 1, 2}}, {{7}}, {{3}, {2}, {1}}};
    for (const BucketLayout& none : no_layouts)
      EXPECT_EQ(TrainSteps(world, net, kSmall, GetParam(), 0, 0, none), BucketLayout());
    EXPECT_EQ(TrainSteps(world, net, kSmall, GetParam(), 0, 2, {{9}}), layout);
    world.Shutdown();
  });
}

INSTANTIATE_TEST_SUITE_P(, BucketLayouts, testing::Bool(), [](const auto& test) {
  return test.param ? std::string("InSharedMemory") : std::string("OverGloo");
});

TEST(SharedGradients, OutliveTheirReducer) {
  InWorld(2, [](World& world) {
    Net net = Trained(world, {});
    at::Tensor gradient = net->head->weight.grad();
    EXPECT_TRUE(std::isfinite(gradient.sum().item<double>()));
    gradient.fill_(3);
    EXPECT_EQ(net->head->weight.grad().max().item<double>(), 3);
    world.Shutdown();
  });
}

TEST(SharedGradients, AreSummedOverBatchesWithoutSynchronisation) {
  InWorld(2, [](World& world) {
    Net net;
    Fill(*net, 0);
    DistributedDataParallel ddp(world, *net, {});
    for (int step = 0; step < 2; ++step) {
      ddp.ZeroGrad();
      {
        const auto no_sync = ddp.NoSync();
        ddp.Forward([&] { return LossOf(net, world.rank(), 0); }).backward();
      }
      const std::int64_t before = ddp.traffic().bytes;
      ddp.Forward([&] { return LossOf(net, world.rank(), 1); }).backward();
      EXPECT_GT(ddp.traffic().bytes, before);
    }
    Net alone;
    Fill(*alone, 0);
    for (int rank = 0; rank < 2; ++rank) {
      for (int batch = 0; batch < 2; ++batch) (LossOf(alone, rank, batch) / 2).backward();
    }
    EXPECT_TRUE(at::allclose(net->hidden->weight.grad(), alone->hidden->weight.grad(), 1e-5, 1e-7));
    world.Shutdown();
  });
}

// LibTorch detaches gradients in place there, and puts zeros into them or drops them.
TEST(Gradients, MayBeClearedByTheOptimizer) {
  InWorld(2, [](World& world) {
    using Options = DistributedDataParallel::Options;
    for (const Options& options :
         {Options{}, Options{.shared_memory = false}, Options{.format = GradientFormat::kBFloat16},
          Options{.find_unused_parameters = true}}) {
      Net expected = Trained(world, options);
      for (const bool to_none : {true, false}) {
        const auto clear = [to_none](auto&, auto& optimizer) { optimizer.zero_grad(to_none); };
        Net net = Trained(world, options, nullptr, nullptr, clear);
        ExpectEqual(net, expected);
      }
    }
    world.Shutdown();
  });
}

// However much sooner one rank is than another.
TEST(SharedNotes, OfAStepAreThoseOfAllRanksUntilTheyAreRead) {
  InWorld(3, [](World& world) {
    Net net;
    DistributedDataParallel ddp(world, *net, {.note_bytes = sizeof(std::int64_t)});
    ShmNotes* const notes = ddp.notes();
    ASSERT_NE(notes, nullptr);
    std::minstd_rand chance(static_cast<unsigned>(world.rank()));
    const auto dawdle = [&chance] {
      std::this_thread::sleep_for(std::chrono::microseconds(chance() % 1000));
    };
    for (std::int64_t step = 0; step < 200; ++step) {
      ddp.ZeroGrad();
      const at::Tensor loss = ddp.Forward([&] { return LossOf(net, world.rank(), 0); });
      dawdle();
      notes->BeginStep();
      const std::int64_t own = 10 * step + world.rank();
      std::memcpy(notes->own(), &own, sizeof own);
      loss.backward();
      ddp.EndBackward();
      dawdle();
      for (int rank = 0; rank < world.size(); ++rank) {
        std::int64_t theirs = -1;
        std::memcpy(&theirs, notes->of(rank), sizeof theirs);
        ASSERT_EQ(theirs, 10 * step + rank);
      }
    }
    world.Shutdown();
  });
}

TEST(SharedGradients, CountWhatTheyCarry) {
  InWorld(2, [](World& world) {
    GradientTraffic traffic;
    Trained(world, {}, nullptr, &traffic);
    EXPECT_EQ(traffic.bytes, 3 * 4 * (7 * kWide + kWide + 3 * kWide + 3));
    EXPECT_GT(traffic.averaging_seconds, 0);
    EXPECT_LE(traffic.waited_seconds, traffic.averaging_seconds);
    world.Shutdown();
  });
}

TEST(SharedGradients, ADeadRankEndsTheOthersWithASentence) {
  InWorld(2, [](World& world) {
    Net net;
    DistributedDataParallel ddp(world, *net, {.broadcast_buffers = false});
    ASSERT_TRUE(ddp.uses_shared_memory());
    ddp.Forward([&] { return LossOf(net, world.rank(), 0); }).backward();
    if (world.rank() == 1) _exit(0);  // without a word, as if it were killed
    try {
      // The step in which buckets are rebuilt talks over Gloo, which sees the end too.
      ddp.Forward([&] { return LossOf(net, world.rank(), 1); }).backward();
      ADD_FAILURE() << "gradients were averaged with a dead rank";
    } catch (const std::exception&) {
    }
  });
}

TEST(SharedGradients, ADeadRankIsNamed) {
  InWorld(2, [](World& world) {
    const auto node = ShmGroup::Form(world, 4096);
    ASSERT_NE(node, nullptr);
    if (world.rank() == 1) _exit(0);
    node->Announce(0, 0);
    try {
      node->AwaitAnnounced(0, std::chrono::seconds(60));
      ADD_FAILURE() << "a dead rank announced something";
    } catch (const PeerError& error) {
      EXPECT_STREQ(error.what(),
                   "rank 1 has ended while gradients were averaged; its own output says why");
    }
  });
}

// Gloo adds in another order, so it must not take over because of a limit at one moment.
void FormWithLimitOnRank1(World& world, int resource, const std::string& reason) {
  world.Barrier();  // connections are there
  rlimit before{};
  getrlimit(static_cast<__rlimit_resource>(resource), &before);
  rlimit none = before;
  none.rlim_cur = 0;
  signal(SIGXFSZ, SIG_IGN);
  if (world.rank() == 1) setrlimit(static_cast<__rlimit_resource>(resource), &none);
  try {
    ShmGroup::Form(world, 4096, /*repeatable=*/true);
    ADD_FAILURE() << "the ranks would have used Gloo";
  } catch (const PeerError& error) {
    EXPECT_EQ(world.rank(), 0) << error.what();
  } catch (const std::runtime_error& error) {
    EXPECT_EQ(world.rank(), 1);
    EXPECT_THAT(error.what(),
                HasSubstr("(" + reason + "), and in deterministic training gradients are always"));
  }
  EXPECT_EQ(ShmGroup::Form(world, 4096), nullptr) << "Gloo takes over in other runs";
  setrlimit(static_cast<__rlimit_resource>(resource), &before);
  EXPECT_NE(ShmGroup::Form(world, 4096), nullptr);
  world.Shutdown();
}

TEST(SharedGradients, ARepeatableRunDoesNotChangeHowItAddsForWantOfMemory) {
  InWorld(2, [](World& world) { FormWithLimitOnRank1(world, RLIMIT_FSIZE, "File too large"); });
}

TEST(SharedGradients, ARepeatableRunDoesNotChangeHowItAddsForWantOfDescriptors) {
  InWorld(2,
          [](World& world) { FormWithLimitOnRank1(world, RLIMIT_NOFILE, "Too many open files"); });
}

TEST(SharedGradients, ASilentRankIsNamedWhenTheTimeIsOver) {
  InWorld(2, [](World& world) {
    const auto node = ShmGroup::Form(world, 4096);
    ASSERT_NE(node, nullptr);
    node->Announce(0, 64 * static_cast<std::uint64_t>(world.rank()));
    EXPECT_THAT(node->AwaitAnnounced(0, std::chrono::seconds(20)), testing::ElementsAre(0, 64));
    node->Finish(0);
    node->AwaitFinished(0, std::chrono::seconds(20));
    if (world.rank() == 0) {
      node->Announce(1, 0);
      try {
        node->AwaitAnnounced(1, std::chrono::milliseconds(50));
        ADD_FAILURE() << "rank 1 announced nothing";
      } catch (const PeerError& error) {
        EXPECT_THAT(error.what(), HasSubstr("rank 1 did not bring its gradients within"));
      }
    }
    world.Shutdown();
  });
}

// What this process has written into all of its TCP connections. What the kernel has not sent yet
// counts, as a step may end before its peer has read everything, and what it sent twice does not.
std::uint64_t TcpBytesWritten() {
  std::uint64_t written = 0;
  DIR* folder = opendir("/proc/self/fd");
  while (const dirent* entry = readdir(folder)) {
    tcp_info info{};
    socklen_t size = sizeof info;
    if (getsockopt(std::atoi(entry->d_name), IPPROTO_TCP, TCP_INFO, &info, &size) == 0)
      written += info.tcpi_bytes_sent - info.tcpi_bytes_retrans + info.tcpi_notsent_bytes;
  }
  closedir(folder);
  return written;
}

double BytesOfTraining(World& world, DistributedDataParallel::Options options) {
  // One bucket that is much larger than everything else that is sent.
  torch::nn::Linear net(1000, 1000);
  DistributedDataParallel ddp(world, *net, options);
  const std::uint64_t before = TcpBytesWritten();
  for (int step = 0; step < 4; ++step) {
    ddp.ZeroGrad();
    ddp.Forward([&] { return net(at::ones({2, 1000})).square().mean(); }).backward();
  }
  return static_cast<double>(TcpBytesWritten() - before);
}

TEST(CompressedGradients, HalveTheBytesOnTheWire) {
  InWorld(2, [](World& world) {
    const double full = BytesOfTraining(world, {.shared_memory = false});
    EXPECT_GT(full, 4 * 1000 * 1000);
    const double bf16 = BytesOfTraining(world, {.format = GradientFormat::kBFloat16});
    const double fp16 = BytesOfTraining(world, {.format = GradientFormat::kHalf});
    EXPECT_NEAR(bf16 / full, 0.5, 0.02);
    EXPECT_NEAR(fp16 / full, 0.5, 0.02);
    EXPECT_LT(BytesOfTraining(world, {}), 0.02 * full) << "in shared memory nothing is sent";
    world.Shutdown();
  });
}

TEST(CompressedGradients, AreTheMeanToTheirPrecision) {
  InWorld(2, [](World& world) {
    Net exact = Trained(world, {});
    Net fp16 = Trained(world, {.format = GradientFormat::kHalf});
    Net bf16 = Trained(world, {.format = GradientFormat::kBFloat16});
    ExpectSameOnAllRanks(world, fp16);
    ExpectSameOnAllRanks(world, bf16);
    EXPECT_LT(Distance(exact, fp16), 2e-4);
    EXPECT_LT(Distance(exact, bf16), 2e-3);
    EXPECT_GT(Distance(exact, bf16), 0) << "nothing was rounded";
    world.Shutdown();
  });
}

}  // namespace
}  // namespace ddprun
