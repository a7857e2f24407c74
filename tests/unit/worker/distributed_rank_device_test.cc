// SPDX-License-Identifier: Apache-2.0
// Which device and backend a rank takes, on machines with no, some and enough GPUs.
#include "worker/distributed/rank_device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

namespace ddprun {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr BackendChoice kAnyBackend = BackendChoice::kAuto;

WorkerEnv LocalRank(int local_rank, int local_world_size) {
  WorkerEnv env;
  env.rank = env.local_rank = local_rank;
  env.world_size = env.local_world_size = local_world_size;
  return env;
}

std::string Refusal(const WorkerEnv& env, BackendChoice backend, DeviceChoice device, int devices) {
  try {
    ChooseDevice(env, backend, device, devices);
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "";
}

RankDevice Cpu() { return {}; }
RankDevice Nccl(int device) { return {.cuda = device, .nccl = true, .note = {}}; }

TEST(RankDeviceTest, AutoTakesTheGpusWhereEachRankHasOne) {
  for (const int rank : {0, 1}) {
    EXPECT_EQ(ChooseDevice(LocalRank(rank, 2), kAnyBackend, DeviceChoice::kAuto, 2), Nccl(rank));
    EXPECT_EQ(ChooseDevice(LocalRank(rank, 2), BackendChoice::kNccl, DeviceChoice::kAuto, 4),
              Nccl(rank));
    EXPECT_EQ(ChooseDevice(LocalRank(rank, 2), kAnyBackend, DeviceChoice::kAuto, 1), Cpu());
    EXPECT_EQ(ChooseDevice(LocalRank(rank, 2), kAnyBackend, DeviceChoice::kAuto, 0), Cpu());
    EXPECT_EQ(ChooseDevice(LocalRank(rank, 2), BackendChoice::kGloo, DeviceChoice::kAuto, 2),
              Cpu());
  }
}

TEST(RankDeviceTest, WithCudaRanksShareGpusAndALineSaysSo) {
  const auto share = [](int rank, int ranks, int devices) {
    return ChooseDevice(LocalRank(rank, ranks), kAnyBackend, DeviceChoice::kCuda, devices);
  };
  EXPECT_EQ(share(2, 4, 1).cuda, 0);
  EXPECT_EQ(share(2, 4, 1).nccl, false);
  EXPECT_EQ(share(2, 4, 1).note,
            "4 ranks share 1 GPU: gradients go by Gloo, as NCCL wants a device for each rank");
  EXPECT_EQ(share(4, 5, 2).cuda, 0);
  EXPECT_EQ(share(3, 5, 2).cuda, 1);
  EXPECT_THAT(share(3, 5, 2).note, HasSubstr("5 ranks share 2 GPUs"));
  EXPECT_EQ(share(1, 2, 2), Nccl(1));
  const RankDevice own =
      ChooseDevice(LocalRank(1, 2), BackendChoice::kGloo, DeviceChoice::kCuda, 2);
  EXPECT_EQ(own.cuda, 1);
  EXPECT_FALSE(own.nccl);
  EXPECT_EQ(own.note, "");
}

TEST(RankDeviceTest, TheCpuIsTakenWhereAskedFor) {
  EXPECT_EQ(ChooseDevice(LocalRank(0, 1), kAnyBackend, DeviceChoice::kCpu, 8), Cpu());
  EXPECT_THAT(Refusal(LocalRank(0, 1), BackendChoice::kNccl, DeviceChoice::kCpu, 8),
              AllOf(HasSubstr("--backend nccl"), HasSubstr("--device is cpu")));
}

TEST(RankDeviceTest, WhatCannotBeIsOneSentence) {
  EXPECT_EQ(Refusal(LocalRank(1, 2), kAnyBackend, DeviceChoice::kCuda, 0),
            "--device cuda needs a CUDA device; the driver shows no CUDA device to rank 1; check "
            "the driver and CUDA_VISIBLE_DEVICES, or use --device cpu");
  EXPECT_EQ(Refusal(LocalRank(1, 2), BackendChoice::kNccl, DeviceChoice::kAuto, 1),
            "--backend nccl needs a CUDA device for each of this node's 2 ranks; the driver shows "
            "1 CUDA device to rank 1; use --backend gloo or fewer ranks a node, or --device cuda "
            "--backend gloo, with which ranks share a GPU");
  EXPECT_THAT(Refusal(LocalRank(1, 2), BackendChoice::kNccl, DeviceChoice::kCuda, 1),
              HasSubstr("--device cuda --backend gloo"));
  EXPECT_THAT(Refusal(LocalRank(0, 1), BackendChoice::kNccl, DeviceChoice::kAuto, 0),
              AllOf(HasSubstr("no CUDA device"), testing::Not(HasSubstr("--device"))));
}

}  // namespace
}  // namespace ddprun
