// SPDX-License-Identifier: Apache-2.0
// Worlds of several ranks, as threads: over the run's store as under ddprun, and over a TCPStore as
// by hand.
#include "ddprun/world.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <fstream>
#include <sstream>

#include "tests/integration/worker/ranks.h"
#include "tests/integration/worker/service.h"
#include "worker/library/accelerator/accelerator.h"

namespace ddprun {
namespace {

using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr milliseconds kTimeout{20'000};

void ExpectSumsAndBroadcasts(World& world) {
  at::Tensor sum = at::full({3}, world.rank() + 1, at::kFloat);
  world.AllReduceSum(sum);
  EXPECT_TRUE(at::equal(sum, at::full({3}, world.size() * (world.size() + 1) / 2, at::kFloat)));
  at::Tensor value = at::tensor({world.rank() * 10}, at::kLong);
  world.Broadcast(value, world.size() - 1);
  EXPECT_EQ(value.item<int64_t>(), (world.size() - 1) * 10);
  const at::Tensor all = world.AllGather(at::tensor({world.rank(), 7}, at::kLong));
  EXPECT_EQ(all.sizes(), (std::vector<std::int64_t>{world.size(), 2}));
  for (int rank = 0; rank < world.size(); ++rank)
    EXPECT_TRUE(at::equal(all[rank], at::tensor({rank, 7}, at::kLong)));
  EXPECT_EQ(world.BroadcastText(world.rank() == 0 ? "of rank 0" : "another"), "of rank 0");
  EXPECT_TRUE(world.OnAllRanks(true));
  EXPECT_FALSE(world.OnAllRanks(world.rank() != world.size() - 1));
}

TEST(World, RanksMeetInTheRunsStoreUnderDdprun) {
  std::unique_ptr<Service> service;
  if (!IsRankProcess()) service = std::make_unique<Service>();
  RunProcesses(
      3, [&](int rank) { return service->EnvOf(rank, 3); },
      [](const WorkerEnv& env) {
        const auto world = World::Join(env, {.backend = BackendChoice::kGloo, .timeout = kTimeout});
        EXPECT_EQ(world->backend_name(), "gloo");
        EXPECT_EQ(world->device(), at::Device(at::kCPU));
        ExpectSumsAndBroadcasts(*world);
        world->Shutdown();
      });
}

// Ranks that only a TCPStore connects.
void InWorldByHand(int size, const std::function<void(World&)>& body) {
  const ReservedPort reserved;
  RunProcesses(
      size, [&](int rank) { return EnvByHand(rank, size, reserved.port()); },
      [&](const WorkerEnv& env) {
        const auto world = World::Join(env, {.backend = BackendChoice::kGloo, .timeout = kTimeout});
        body(*world);
        world->Shutdown();
      });
}

TEST(World, RanksMeetInATcpStoreByHand) { InWorldByHand(2, ExpectSumsAndBroadcasts); }

TEST(World, OneRankNeedsNoStoreAndNoLauncher) {
  const auto world =
      World::Join(WorkerEnv{}, {.backend = BackendChoice::kGloo, .timeout = kTimeout});
  ExpectSumsAndBroadcasts(*world);
  world->Shutdown();
}

TEST(World, BarrierHoldsEachRankUntilAllAreThere) {
  InWorldByHand(3, [](World& world) {
    world.store()->add("arrived", 1);
    world.Barrier();
    EXPECT_EQ(world.store()->add("arrived", 0), 3);
  });
}

TEST(World, SubgroupsOfOneNameDoNotMix) {
  InWorldByHand(4, [](World& world) {
    const int first = world.rank() / 2 * 2;
    World& neighbours = world.Subgroup("neighbours", {first, first + 1});
    World& alike = world.Subgroup("alike", {world.rank() % 2, world.rank() % 2 + 2});
    EXPECT_EQ(neighbours.rank(), world.rank() % 2);
    EXPECT_EQ(alike.rank(), world.rank() / 2);
    at::Tensor sum = at::full({1}, world.rank(), at::kLong);
    neighbours.AllReduceSum(sum);
    EXPECT_EQ(sum.item<int64_t>(), 2 * first + 1);
    ExpectSumsAndBroadcasts(alike);
    ExpectSumsAndBroadcasts(world);
  });
}

TEST(World, WithinAStepAPeerIsWaitedForOnlyBriefly) {
  const ReservedPort reserved;
  RunProcesses(
      2, [&](int rank) { return EnvByHand(rank, 2, reserved.port()); },
      [](const WorkerEnv& env) {
        const auto world = World::Join(env, {.backend = BackendChoice::kGloo,
                                             .timeout = kTimeout,
                                             .step_timeout = milliseconds(300)});
        ExpectSumsAndBroadcasts(*world);
        if (world->rank() == 1) {  // is busy with something else
          world->store()->wait({"gave up"});
          world->store()->set("heard", "1");  // which is not answered
          return;
        }
        world->ExpectPeersSoon(true);
        at::Tensor sum = at::ones({3});
        EXPECT_THAT([&] { world->AllReduceSum(sum); },
                    testing::ThrowsMessage<std::exception>(HasSubstr("Timed out waiting 300ms")));
        world->store()->set("gave up", "1");
        world->store()->wait({"heard"});  // since rank 0 serves the store
      });
}

TEST(World, ATakenPortIsSaidWithItsNumber) {
  c10d::TCPStoreOptions options;
  options.isServer = true;
  options.port = 0;
  const auto other = c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
  const auto errors = RunThreads(1, [&](int) {
    World::Join(EnvByHand(0, 2, other->getPort()),
                {.backend = BackendChoice::kGloo, .timeout = milliseconds(1500)});
  });
  EXPECT_THAT(errors, ElementsAre(HasSubstr("127.0.0.1:" + std::to_string(other->getPort()))));
  EXPECT_THAT(errors, ElementsAre(HasSubstr("Choose another MASTER_PORT")));
}

TEST(World, AMasterThatDoesNotAnswerIsSaidWithItsAddress) {
  const ReservedPort reserved;
  const auto errors = RunThreads(1, [&](int) {
    World::Join(EnvByHand(1, 2, reserved.port()),
                {.backend = BackendChoice::kGloo, .timeout = milliseconds(1500)});
  });
  EXPECT_THAT(errors, ElementsAre(HasSubstr("rank 1 did not reach rank 0's store at 127.0.0.1:" +
                                            std::to_string(reserved.port()))));
}

TEST(World, AWorldThatDoesNotFillUpNamesWhoIsMissing) {
  const ReservedPort reserved;
  const auto errors = RunThreads(1, [&](int) {
    World::Join(EnvByHand(0, 3, reserved.port()),
                {.backend = BackendChoice::kGloo, .timeout = milliseconds(1500)});
  });
  EXPECT_THAT(errors, ElementsAre(HasSubstr("ranks 1, 2 of 3 did not come")));
}

TEST(World, NcclWithoutADeviceIsOneSentence) {
  if (DriverDeviceCount() > 0) GTEST_SKIP() << "this machine has a CUDA device";
  const auto errors =
      RunThreads(1, [](int) { World::Join(WorkerEnv{}, {.backend = BackendChoice::kNccl}); });
  EXPECT_THAT(
      errors,
      ElementsAre("the backend nccl needs a CUDA device for each of this node's 1 rank; the driver "
                  "shows no CUDA device to rank 0; choose the backend gloo or fewer ranks a node"));
}

TEST(World, ARunOnTheCpuMapsNoCudaLibraryOfLibTorch) {
  if (DriverDeviceCount() > 0) GTEST_SKIP() << "auto takes the CUDA device that this machine has";
  const auto world =
      World::Join(WorkerEnv{}, {.backend = BackendChoice::kAuto, .timeout = kTimeout});
  EXPECT_EQ(world->backend_name(), "gloo");
  ExpectSumsAndBroadcasts(*world);
  std::stringstream maps;
  maps << std::ifstream("/proc/self/maps").rdbuf();
  ASSERT_THAT(maps.str(), HasSubstr("libtorch_cpu.so"));
  EXPECT_THAT(maps.str(), testing::Not(HasSubstr("libtorch_cuda")));
  EXPECT_THAT(maps.str(), testing::Not(HasSubstr("libnccl")));
  world->Shutdown();
}

}  // namespace
}  // namespace ddprun
