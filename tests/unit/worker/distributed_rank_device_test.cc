// SPDX-License-Identifier: Apache-2.0
// Which device a rank takes, and which backend all of them: on machines with no, some and enough
// GPUs, and with launchers that show each rank only its own.
#include "worker/library/distributed/rank_device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
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

// The device of that number on the only node.
std::string Gpu(int number) { return "GPU-" + std::to_string(number); }

CudaDevices Devices(int count) {
  CudaDevices devices{.shown = count};
  for (int i = 0; i < count; ++i) devices.uuids.push_back(Gpu(i));
  return devices;
}

CudaDevices Unusable(int shown) {
  return {.shown = shown, .problem = "LibTorch cannot use any; update the driver"};
}

RankDevice Cpu() { return {}; }
RankDevice Takes(int device) { return {.cuda = device, .uuid = Gpu(device), .note = ""}; }

std::string Refusal(const std::function<void()>& choose) {
  try {
    choose();
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "";
}

std::string Refusal(const WorkerEnv& env, BackendChoice backend, DeviceChoice device,
                    const CudaDevices& devices) {
  return Refusal([&] { ChooseDevice(env, backend, device, devices); });
}

std::vector<DeviceOffer> Offers(const std::vector<std::string>& uuids,
                                BackendChoice backend = kAnyBackend) {
  std::vector<DeviceOffer> offers;
  for (const std::string& uuid : uuids) offers.push_back({.backend = backend, .uuid = uuid});
  return offers;
}

std::string Refusal(const std::vector<DeviceOffer>& offers) {
  return Refusal([&] { ChooseBackend(offers); });
}

TEST(RankDeviceTest, TheLocalRankChoosesAmongTheDevices) {
  for (const auto device : {DeviceChoice::kAuto, DeviceChoice::kCuda}) {
    for (const int rank : {0, 1})
      EXPECT_EQ(ChooseDevice(LocalRank(rank, 2), kAnyBackend, device, Devices(2)), Takes(rank));
    // One of its own, whatever its number: a launcher shows it no other.
    EXPECT_EQ(ChooseDevice(LocalRank(3, 4), kAnyBackend, device, Devices(1)), Takes(0));
    EXPECT_EQ(ChooseDevice(LocalRank(4, 5), kAnyBackend, device, Devices(2)), Takes(0));
  }
}

TEST(RankDeviceTest, TheCpuIsTakenWhereAskedForOrWithoutADriver) {
  EXPECT_EQ(ChooseDevice(LocalRank(0, 1), kAnyBackend, DeviceChoice::kCpu, Devices(8)), Cpu());
  EXPECT_EQ(ChooseDevice(LocalRank(0, 1), kAnyBackend, DeviceChoice::kAuto, Devices(0)), Cpu());
  EXPECT_EQ(ChooseDevice(LocalRank(0, 1), BackendChoice::kGloo, DeviceChoice::kAuto, Devices(0)),
            Cpu());
  EXPECT_THAT(Refusal(LocalRank(0, 1), BackendChoice::kNccl, DeviceChoice::kCpu, Devices(8)),
              AllOf(HasSubstr("the backend nccl"), HasSubstr("the device is cpu")));
}

TEST(RankDeviceTest, TheCpuIsNeverTakenSilentlyWhereTheDriverShowsADevice) {
  const RankDevice unusable =
      ChooseDevice(LocalRank(1, 2), kAnyBackend, DeviceChoice::kAuto, Unusable(2));
  EXPECT_EQ(unusable.cuda, -1);
  EXPECT_EQ(unusable.note,
            "the CPU is used, though the driver shows 2 CUDA devices to rank 1: LibTorch cannot "
            "use any; update the driver");
  const RankDevice gloo =
      ChooseDevice(LocalRank(0, 1), BackendChoice::kGloo, DeviceChoice::kAuto, {.shown = 1});
  EXPECT_EQ(gloo.cuda, -1);
  EXPECT_EQ(
      gloo.note,
      "the CPU is used, though the driver shows 1 CUDA device to rank 0: the device auto means "
      "the CPU with the backend gloo; choose the device cuda to use a GPU");
}

// A driver that is installed and fails is not a machine without one.
TEST(RankDeviceTest, TheCpuIsNeverTakenSilentlyWhereADriverIsInstalled) {
  const CudaDevices failing{.problem = "the NVIDIA driver fails with error 802"};
  for (const BackendChoice backend : {kAnyBackend, BackendChoice::kGloo}) {
    const RankDevice cpu = ChooseDevice(LocalRank(0, 1), backend, DeviceChoice::kAuto, failing);
    EXPECT_EQ(cpu.cuda, -1);
    EXPECT_EQ(cpu.note, "the CPU is used: the NVIDIA driver fails with error 802");
  }
  EXPECT_EQ(ChooseDevice(LocalRank(0, 1), kAnyBackend, DeviceChoice::kCpu, failing).note, "");
  EXPECT_EQ(Refusal(LocalRank(0, 1), kAnyBackend, DeviceChoice::kCuda, failing),
            "the device cuda needs a CUDA device; the NVIDIA driver fails with error 802");
}

TEST(RankDeviceTest, WhatCannotBeIsOneSentence) {
  EXPECT_EQ(Refusal(LocalRank(1, 2), kAnyBackend, DeviceChoice::kCuda, Devices(0)),
            "the device cuda needs a CUDA device; the driver shows no CUDA device to rank 1; check "
            "the driver and CUDA_VISIBLE_DEVICES, or choose the device cpu");
  EXPECT_EQ(Refusal(LocalRank(1, 2), kAnyBackend, DeviceChoice::kCuda, Unusable(2)),
            "the device cuda needs a CUDA device; the driver shows 2 CUDA devices to rank 1, but "
            "LibTorch cannot use any; update the driver");
  EXPECT_EQ(
      Refusal(LocalRank(1, 2), BackendChoice::kNccl, DeviceChoice::kAuto, Devices(0)),
      "the backend nccl needs a CUDA device for each of this node's 2 ranks; the driver shows "
      "no CUDA device to rank 1; choose the backend gloo or fewer ranks a node");
}

TEST(GroupBackendTest, NcclWhereEachRankHasAGpuOfItsOwn) {
  EXPECT_TRUE(ChooseBackend(Offers({"GPU-0"})).nccl);
  const GroupBackend own = ChooseBackend(Offers({"GPU-0", "GPU-1", "GPU-2"}));
  EXPECT_TRUE(own.nccl);
  EXPECT_EQ(own.note, "");
  EXPECT_TRUE(ChooseBackend(Offers({"GPU-0", "GPU-1"}, BackendChoice::kNccl)).nccl);
  const GroupBackend gloo = ChooseBackend(Offers({"GPU-0", "GPU-1"}, BackendChoice::kGloo));
  EXPECT_FALSE(gloo.nccl);
  EXPECT_EQ(gloo.note, "");
  const GroupBackend cpus = ChooseBackend(Offers({"", "", ""}));
  EXPECT_FALSE(cpus.nccl);
  EXPECT_EQ(cpus.note, "");
}

TEST(GroupBackendTest, RanksThatShareAGpuTakeGlooAndALineReportsIt) {
  const GroupBackend one = ChooseBackend(Offers({"GPU-0", "GPU-0", "GPU-0", "GPU-0"}));
  EXPECT_FALSE(one.nccl);
  EXPECT_EQ(one.note,
            "4 ranks share 1 GPU (ranks 0 and 1 have the same): gradients go by Gloo, as NCCL "
            "wants a device for each rank; start one rank a GPU to use NCCL");
  EXPECT_THAT(ChooseBackend(Offers({"GPU-0", "GPU-1", "GPU-1"})).note,
              HasSubstr("3 ranks share 2 GPUs (ranks 1 and 2 have the same)"));
  EXPECT_EQ(Refusal(Offers({"GPU-0", "GPU-1", "GPU-0"}, BackendChoice::kNccl)),
            "the backend nccl needs a CUDA device for each rank, but ranks 0 and 2 have the same; "
            "start fewer ranks a node, or choose the device cuda and the backend gloo, with which "
            "ranks share a GPU");
}

TEST(GroupBackendTest, RanksThatDoNotFitTogetherAreNamed) {
  EXPECT_EQ(Refusal(Offers({"GPU-0", "GPU-1", "GPU-2", ""})),
            "rank 3 would train on the CPU, rank 0 on a GPU; give all ranks the same device and "
            "backend, or check the driver and CUDA_VISIBLE_DEVICES where rank 3 runs");
  EXPECT_THAT(Refusal(Offers({"", "", "GPU-2"})),
              HasSubstr("rank 0 would train on the CPU, rank 2 on a GPU"));
  std::vector<DeviceOffer> offers = Offers({"GPU-0", "", "GPU-2"});
  offers[1].note = "LibTorch cannot use any";
  EXPECT_THAT(Refusal(offers), HasSubstr("on a GPU (LibTorch cannot use any); give all ranks"));
  offers = Offers({"GPU-0", "GPU-1", "GPU-2"});
  offers[1].backend = BackendChoice::kGloo;  // which the others, that ask for none, follow
  EXPECT_FALSE(ChooseBackend(offers).nccl);
  offers[2].backend = BackendChoice::kNccl;
  EXPECT_EQ(Refusal(offers),
            "rank 2 has the backend nccl, rank 1 the backend gloo; give all ranks the same");
}

TEST(GroupBackendTest, AnOfferIsReadAsItIsWritten) {
  for (const auto backend : {BackendChoice::kAuto, BackendChoice::kGloo, BackendChoice::kNccl}) {
    for (const char* uuid : {"", "GPU-00112233-4455"}) {
      for (const char* note : {"", "why it is so"}) {
        const DeviceOffer read =
            ParseOffer(ToText({.backend = backend, .uuid = uuid, .note = note}));
        EXPECT_EQ(read.backend, backend);
        EXPECT_EQ(read.uuid, uuid);
        EXPECT_EQ(read.note, note);
      }
    }
  }
  EXPECT_THAT(Refusal([] { ParseOffer("mpi GPU-0"); }), HasSubstr("\"mpi GPU-0\""));
}

}  // namespace
}  // namespace ddprun
