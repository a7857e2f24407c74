// SPDX-License-Identifier: Apache-2.0
#include "worker/memory/huge_page_allocator.h"

#include <c10/core/CPUAllocator.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <torch/torch.h>

#include <thread>
#include <vector>

namespace ddprun {
namespace {

constexpr int64_t kFloats = 4 << 20;  // 16 MiB

long PageFaults() {
  rusage usage{};
  getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_minflt;
}

TEST(HugePageAllocator, LargeTensorsComeFromItAndGoBack) {
  UseHugePageAllocator();
  const std::size_t before = GetHugePageUse().taken_bytes;
  {
    const at::Tensor tensor = at::ones({kFloats});
    EXPECT_EQ(GetHugePageUse().taken_bytes, before + kFloats * sizeof(float));
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(tensor.data_ptr()) % 64, 0u);
    EXPECT_EQ(tensor.sum().item<double>(), kFloats);
  }
  EXPECT_EQ(GetHugePageUse().taken_bytes, before);
}

TEST(HugePageAllocator, SmallTensorsStayWithMalloc) {
  UseHugePageAllocator();
  const std::size_t before = GetHugePageUse().taken_bytes;
  const at::Tensor tensor = at::ones({16});
  const at::Tensor none = at::empty({0});
  EXPECT_EQ(GetHugePageUse().taken_bytes, before);
}

TEST(HugePageAllocator, ASecondUseOfTheMemoryFaultsNoPageIn) {
  UseHugePageAllocator();
  at::ones({kFloats});
  const long before = PageFaults();
  at::ones({kFloats});
  EXPECT_LT(PageFaults() - before, 16) << "16 MiB are 4096 small pages or 8 huge ones";
}

TEST(HugePageAllocator, ATensorThatIsFreedByAnotherThreadIsFree) {
  UseHugePageAllocator();
  const std::size_t before = GetHugePageUse().taken_bytes;
  std::vector<at::Tensor> tensors;
  for (int i = 0; i < 4; ++i) tensors.push_back(at::ones({kFloats / 4}));
  std::thread([&] { tensors.clear(); }).join();
  EXPECT_EQ(GetHugePageUse().taken_bytes, before);
}

TEST(HugePageAllocator, WhatIsFreeGoesBackWhenOtherSizesAreNeeded) {
  UseHugePageAllocator();
  at::ones({8 * kFloats});  // 128 MiB
  const std::size_t mapped = GetHugePageUse().mapped_bytes;
  const at::Tensor larger = at::ones({16 * kFloats});
  EXPECT_LT(GetHugePageUse().mapped_bytes, mapped + 16 * kFloats * sizeof(float));
}

TEST(HugePageAllocator, ATensorThatNoMemoryHoldsIsAnError) {
  UseHugePageAllocator();
  EXPECT_THROW(at::empty({int64_t{1} << 60}), c10::Error);
}

TEST(HugePageAllocator, RawAllocationsGoBackToWhereTheyCameFrom) {
  UseHugePageAllocator();
  const std::size_t before = GetHugePageUse().taken_bytes;
  c10::Allocator* allocator = c10::GetCPUAllocator();
  void* small = allocator->raw_allocate(100);
  void* large = allocator->raw_allocate(kHugePageAllocationMin);
  EXPECT_EQ(GetHugePageUse().taken_bytes, before + kHugePageAllocationMin);
  allocator->raw_deallocate(small);
  allocator->raw_deallocate(large);
  EXPECT_EQ(GetHugePageUse().taken_bytes, before);
}

}  // namespace
}  // namespace ddprun
