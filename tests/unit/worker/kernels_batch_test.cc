// SPDX-License-Identifier: Apache-2.0
// Batches made by the kernel (batch.cu) are those made by operations on tensors, bit by bit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "tests/testing/emulated_kernels.h"
#include "worker/train/data/augment.h"
#include "worker/train/kernels/kernels.h"
#include "worker/train/loader/gpu_images.h"

namespace ddprun {
namespace {

FixedSizeImages SetOf(const SampleShape& shape, std::int64_t count) {
  torch::manual_seed(3);
  const auto channels = static_cast<std::size_t>(shape.channels);
  FixedSizeImages::Options options{.shape = shape};
  options.mean.assign(channels, 0.4f);
  options.std.assign(channels, 0.3f);
  options.mean.back() = 0.5f;
  return {{{at::randint(256, {count, shape.channels, shape.height, shape.width}, at::kByte),
            at::randint(10, {count}, at::kLong)}},
          options};
}

// By the kernel and by tensors.
std::pair<GpuImages::Batch, GpuImages::Batch> MakeBoth(const GpuImages& images,
                                                       const GpuImages::Request& request) {
  const GpuImages::Batch expected = images.Make(request);
  const auto emulator = EmulatedKernels();
  const KernelsOnCpu on_cpu(*emulator);
  const GpuImages::Batch batch = images.Make(request);
  EXPECT_THAT(emulator->TakeLaunches(),
              testing::ElementsAre(testing::Pair(KernelName("make_batch", request.type), 1)));
  return {batch, expected};
}

class BatchKernelTest : public testing::TestWithParam<std::tuple<at::ScalarType, SampleShape>> {};

TEST_P(BatchKernelTest, HasTheBitsOfOperationsOnTensors) {
  const auto& [type, shape] = GetParam();
  const FixedSizeImages set = SetOf(shape, 20);
  const GpuImages images(set, {.padding = 2, .mode = Padding::kReflect}, at::kCPU);
  std::vector<Sample> samples;
  for (std::int64_t i = 0; i < 17; ++i) samples.push_back({(i * 7) % 20, i});
  const at::Tensor rows = images.Rows(samples, Draw{.seed = 1, .epoch = 2});
  for (const std::int64_t count : {1, 5, 13}) {
    for (const std::int64_t channels : {0, 8}) {
      const auto [batch, expected] = MakeBoth(images, {.rows = rows,
                                                       .cursor = at::full({}, 3, at::kLong),
                                                       .first = 1,
                                                       .count = count,
                                                       .type = type,
                                                       .channels = channels});
      EXPECT_EQ(batch.images.scalar_type(), type);
      EXPECT_TRUE(batch.images.is_contiguous(at::MemoryFormat::ChannelsLast));
      EXPECT_EQ(batch.images.size(1), std::max(shape.channels, channels));
      EXPECT_TRUE(at::equal(batch.images, expected.images));
      EXPECT_TRUE(at::equal(batch.labels, expected.labels));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, BatchKernelTest,
    testing::Combine(testing::Values(at::kFloat, at::kBFloat16, at::kHalf),
                     testing::Values(SampleShape{3, 12, 10}, SampleShape{1, 5, 7},
                                     SampleShape{1, 3, 3}, SampleShape{4, 8, 8})));

// More labels than groups of 16 bytes.
TEST(BatchKernel, SmallImagesHaveAllTheirLabels) {
  const GpuImages images(SetOf({1, 1, 1}, 600), {.padding = 0}, at::kCPU);
  std::vector<Sample> samples;
  for (std::int64_t i = 0; i < 600; ++i) samples.push_back({599 - i, i});
  const auto [batch, expected] =
      MakeBoth(images, {.rows = images.Rows(samples, {}), .count = 600, .type = at::kBFloat16});
  EXPECT_TRUE(at::equal(batch.images, expected.images));
  EXPECT_TRUE(at::equal(batch.labels, expected.labels));
}

}  // namespace
}  // namespace ddprun
