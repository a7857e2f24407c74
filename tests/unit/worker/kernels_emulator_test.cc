// SPDX-License-Identifier: Apache-2.0
// The emulator itself: threads of a block meet, and numbers of 16 bits are LibTorch's.
#include "tests/testing/cuda_emulator.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <bit>
#include <stdexcept>

#include "tests/testing/cuda_words.h"

namespace ddprun {
namespace {

constexpr unsigned kThreads = 96;

// Each thread writes, then reads what its neighbour wrote, several times.
void PassOn(int* values, int rounds) {
  __shared__ int shown[kThreads];
  int own = static_cast<int>(threadIdx.x + blockIdx.x * 1000);
  for (int i = 0; i < rounds; ++i) {
    shown[threadIdx.x] = own;
    __syncthreads();
    own = shown[(threadIdx.x + 1) % blockDim.x];
    __syncthreads();
  }
  values[blockIdx.x * blockDim.x + threadIdx.x] = own;
}

// Without a barrier a thread finds what its neighbour wrote, or not, by their order.
void ReadUnsynchronised(int* values, int distance) {
  __shared__ int shown[kThreads];
  shown[threadIdx.x] = -1;
  __syncthreads();
  shown[threadIdx.x] = 1;
  values[blockIdx.x * blockDim.x + threadIdx.x] =
      shown[(threadIdx.x + blockDim.x + distance) % blockDim.x];
}

void HalfOfThemSynchronize() {
  if (threadIdx.x % 2 == 0) __syncthreads();
}

TEST(CudaEmulator, ThreadsOfABlockMeet) {
  CudaEmulator emulator(1);
  emulator.Add("pass_on", &PassOn);
  std::vector<int> values(2 * kThreads, -1);
  LaunchKernel(emulator, "pass_on", {.blocks = 2, .threads = kThreads}, values.data(), 3);
  for (unsigned i = 0; i < values.size(); ++i)
    EXPECT_EQ(values[i], static_cast<int>((i % kThreads + 3) % kThreads + i / kThreads * 1000));
}

TEST(CudaEmulator, AMissingBarrierShowsInOneOrderOfThreads) {
  CudaEmulator emulator(1);
  emulator.Add("read", &ReadUnsynchronised);
  for (const int distance : {-1, 1}) {
    std::vector<int> values(2 * kThreads, 0);
    LaunchKernel(emulator, "read", {.blocks = 2, .threads = kThreads}, values.data(), distance);
    EXPECT_GT(std::count(values.begin(), values.end(), -1), static_cast<int>(kThreads) / 2);
  }
}

TEST(CudaEmulator, ABarrierThatSomeNeverReachAndWrongArgumentsAreErrors) {
  CudaEmulator emulator(1);
  emulator.Add("half", &HalfOfThemSynchronize);
  emulator.Add("pass_on", &PassOn);
  EXPECT_THROW(LaunchKernel(emulator, "half", {.threads = 4}), std::logic_error);
  EXPECT_THROW(LaunchKernel(emulator, "pass_on", {.threads = 32}), std::logic_error);
  EXPECT_THROW(LaunchKernel(emulator, "pass_on", {.threads = 32}, 1, 1), std::logic_error);
  EXPECT_THROW(LaunchKernel(emulator, "other", {}), std::out_of_range);
}

TEST(CudaEmulator, NumbersOf16BitsAreLibTorchs) {
  // Each number of 16 bits, and what lies between it and its neighbours.
  for (unsigned bits = 0; bits < 65536; ++bits) {
    const auto narrow = static_cast<unsigned short>(bits);
    const float value = emulator::FloatOfHalfBits(narrow);
    const c10::Half half(narrow, c10::Half::from_bits());
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(static_cast<float>(half)));
      continue;
    }
    ASSERT_EQ(value, static_cast<float>(half));
    for (const float factor : {1.0f, 1.0f + 0x1p-11f, 1.0f + 0x1.8p-11f, 1.0f - 0x1p-12f}) {
      ASSERT_EQ(emulator::HalfOfFloat(value * factor), c10::Half(value * factor).x)
          << value << " " << factor;
    }
    const float wide = std::bit_cast<float>(bits << 16 | (bits & 1 ? 0x8000u : 0x8001u));
    if (!std::isnan(wide)) {
      ASSERT_EQ(emulator::BFloat16OfFloat(wide), c10::BFloat16(wide).x);
    }
  }
}

}  // namespace
}  // namespace ddprun
