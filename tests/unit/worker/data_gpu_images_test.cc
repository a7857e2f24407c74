// SPDX-License-Identifier: Apache-2.0
// Batches made by operations on tensors are those that the loader makes byte by byte.
#include "worker/train/loader/gpu_images.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "worker/train/data/augment.h"

namespace ddprun {
namespace {

constexpr SampleShape kShape{3, 12, 10};
constexpr std::uint64_t kSeed = 7;

// Two parts, as the files of CIFAR-10 are.
FixedSizeImages MadeUp(std::int64_t channels, std::int64_t height, std::int64_t width,
                       bool varied = true) {
  torch::manual_seed(1);
  const auto part = [&](std::int64_t count) {
    return LabelledImages{at::randint(256, {count, channels, height, width}, at::kByte),
                          at::randint(10, {count}, at::kLong)};
  };
  return {
      {part(40), part(24)},
      {.shape = kShape, .mean = {0.4f, 0.5f, 0.6f}, .std = {0.2f, 0.25f, 0.3f}, .varied = varied}};
}

GpuImages::Batch Make(const GpuImages& images, const at::Tensor& rows) {
  return images.Make({.rows = rows, .count = rows.size(0)});
}

std::vector<Sample> SomeSamples(const FixedSizeImages& set) {
  std::vector<Sample> samples;
  for (std::int64_t i = 0; i < set.size(); ++i) samples.push_back({(i * 37) % set.size(), i});
  return samples;
}

void ExpectAsWritten(const FixedSizeImages& set, bool augment,
                     const AugmentOptions& variation = {}) {
  const std::vector<Sample> samples = SomeSamples(set);
  const GpuImages resident(set, variation, at::kCPU);
  std::optional<Draw> all;
  if (augment) all = Draw{.seed = kSeed, .epoch = 2};
  const auto batch = Make(resident, resident.Rows(samples, all));
  ASSERT_EQ(batch.images.size(0), set.size());
  EXPECT_TRUE(batch.images.is_contiguous(at::MemoryFormat::ChannelsLast));
  at::Tensor expected = at::empty({kShape.channels, kShape.height, kShape.width});
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const auto row = static_cast<std::int64_t>(i);
    const Draw draw{.seed = kSeed,
                    .epoch = 2,
                    .position = static_cast<std::uint64_t>(samples[i].position),
                    .index = static_cast<std::uint64_t>(samples[i].index),
                    .options = variation};
    set.Write(samples[i].index, augment ? &draw : nullptr, /*channels_last=*/false,
              expected.data_ptr<float>());
    EXPECT_TRUE(at::equal(batch.images[row], expected)) << "sample " << i;
    EXPECT_EQ(batch.labels[row].item<std::int64_t>(), set.Label(samples[i].index));
  }
}

TEST(GpuImages, AreThoseOfTheSet) { ExpectAsWritten(MadeUp(3, 12, 10), /*augment=*/false); }

TEST(GpuImages, AreCutAndMirroredAlike) { ExpectAsWritten(MadeUp(3, 12, 10), /*augment=*/true); }

TEST(GpuImages, AreReflectedAtTheirEdges) {
  ExpectAsWritten(MadeUp(3, 12, 10), /*augment=*/true,
                  {.padding = 2, .mode = Padding::kReflect, .flip = Flip::kAlternating});
  // Those in a frame with their frame.
  ExpectAsWritten(MadeUp(1, 9, 6), /*augment=*/true, {.padding = 9, .mode = Padding::kReflect});
}

TEST(GpuImages, GreyOnesAreOnEveryChannelAndSmallOnesInTheMiddle) {
  ExpectAsWritten(MadeUp(1, 9, 6), /*augment=*/true);
}

TEST(GpuImages, ASetThatIsNotVariedIsNot) {
  ExpectAsWritten(MadeUp(3, 12, 10, /*varied=*/false), /*augment=*/true);
}

TEST(GpuImages, TakeTheMemoryThatTheySay) {
  const FixedSizeImages set = MadeUp(3, 12, 10);
  EXPECT_EQ(GpuImages::BytesOf(set, {}), 64 * ((12 + 8) * (10 + 8) * 3 + 8));
  EXPECT_EQ(GpuImages::BytesOf(set, {.padding = 0}), 64 * (12 * 10 * 3 + 8));
}

}  // namespace
}  // namespace ddprun
