// SPDX-License-Identifier: Apache-2.0
// libddprun_cuda.so on a real device: what the tests elsewhere, which have none, cannot see.
#include "worker/library/accelerator/accelerator.h"

#include <ATen/Functions.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <vector>

#include "tests/gpu/device.h"

namespace ddprun {
namespace {

constexpr std::chrono::seconds kDeadline{30};

c10::intrusive_ptr<c10d::Backend> MakeGroup(const c10::intrusive_ptr<c10d::Store>& store, int rank,
                                            int size) {
  LoadAccelerator().SetDevice(rank);
  return LoadAccelerator().MakeNccl(
      store,
      {.rank = rank, .size = size, .device = rank, .timeout = kDeadline, .group_name = "gpu_test"});
}

at::Tensor OnDevice(int device, double value) {
  return at::full({1 << 20}, value,
                  at::TensorOptions()
                      .dtype(at::kFloat)
                      .device(at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(device))));
}

TEST(Accelerator, TellsOfTheDriverAndOfAsManyDevicesAsIt) {
  DDPRUN_NEEDS_GPUS(1);
  EXPECT_THAT(LoadAccelerator().Versions(),
              testing::MatchesRegex("CUDA [0-9]+\\.[0-9]+, driver [0-9]+\\.[0-9]+, NCCL [0-9.]+"));
  EXPECT_EQ(LoadAccelerator().DeviceCount(), DriverDeviceCount());
}

TEST(Accelerator, AWorldOfOneReducesToItself) {
  DDPRUN_NEEDS_GPUS(1);
  const auto group = MakeGroup(c10::make_intrusive<c10d::HashStore>(), 0, 1);
  std::vector<at::Tensor> tensors{OnDevice(0, 3)};
  EXPECT_TRUE(group->allreduce(tensors)->wait(kDeadline));
  LoadAccelerator().Synchronize(0);
  EXPECT_TRUE(tensors[0].eq(3).all().item<bool>());
}

TEST(Accelerator, TwoDevicesReduceToTheirSum) {
  DDPRUN_NEEDS_GPUS(2);
  const auto store = c10::make_intrusive<c10d::HashStore>();
  std::vector<std::thread> ranks;
  std::vector<char> sums(2, 0);
  for (int rank = 0; rank < 2; ++rank) {
    ranks.emplace_back([&, rank] {
      const auto group = MakeGroup(store, rank, 2);
      std::vector<at::Tensor> tensors{OnDevice(rank, rank + 1)};
      group->allreduce(tensors)->wait(kDeadline);
      LoadAccelerator().Synchronize(rank);
      sums[static_cast<std::size_t>(rank)] = tensors[0].eq(3).all().item<bool>() ? 1 : 0;
    });
  }
  for (std::thread& rank : ranks) rank.join();
  EXPECT_THAT(sums, testing::Each(1));
}

}  // namespace
}  // namespace ddprun
