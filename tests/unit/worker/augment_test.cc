// SPDX-License-Identifier: Apache-2.0
#include "worker/augment.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <map>
#include <tuple>

namespace ddprun {
namespace {

constexpr std::int64_t kSide = 32;

// Two coloured images of random bytes.
LabelledImages Coloured() {
  torch::manual_seed(3);
  return {at::randint(0, 256, {2, 3, kSide, kSide}, at::kByte), at::zeros({2}, at::kLong)};
}

const std::vector<float> kMean = {0.1f, 0.2f, 0.3f};
const std::vector<float> kStd = {0.5f, 0.25f, 0.2f};

at::Tensor Normalised(const at::Tensor& bytes) {
  const at::Tensor mean = at::tensor(kMean).view({3, 1, 1});
  const at::Tensor std = at::tensor(kStd).view({3, 1, 1});
  return bytes.to(at::kFloat).div(255).sub(mean).div(std);
}

at::Tensor Written(const LabelledImages& set, std::int64_t index, const Placement& placement) {
  at::Tensor out = at::empty({3, kSide, kSide});
  BatchWriter(set, 3, kMean, kStd)
      .Write(index, placement, /*channels_last=*/false, out.data_ptr<float>());
  return out;
}

// What torchvision's RandomCrop(32, padding=4) and hflip do, in tensor operations.
at::Tensor Reference(const at::Tensor& bytes, const Placement& placement) {
  const at::Tensor padded =
      at::constant_pad_nd(bytes, {kCropPadding, kCropPadding, kCropPadding, kCropPadding});
  const at::Tensor cut = padded.narrow(1, kCropPadding + placement.shift_y, kSide)
                             .narrow(2, kCropPadding + placement.shift_x, kSide);
  return Normalised(placement.mirrored ? cut.flip({2}) : cut);
}

TEST(BatchWriter, NormalisesExactlyAsPython) {
  const auto set = Coloured();
  EXPECT_TRUE(Written(set, 1, {}).equal(Normalised(set.images[1])));
}

TEST(BatchWriter, CutsAndMirrorsAtEveryPlacement) {
  const auto set = Coloured();
  for (std::int64_t y = -kCropPadding; y <= kCropPadding; ++y) {
    for (std::int64_t x = -kCropPadding; x <= kCropPadding; ++x) {
      for (const bool mirrored : {false, true}) {
        const Placement placement{y, x, mirrored};
        EXPECT_TRUE(Written(set, 0, placement).equal(Reference(set.images[0], placement)))
            << "shift " << y << ", " << x << (mirrored ? ", mirrored" : "");
      }
    }
  }
}

TEST(BatchWriter, ChannelsLastHasTheSameNumbers) {
  const auto set = Coloured();
  const Placement placement{-2, 3, true};
  at::Tensor out = at::empty({1, 3, kSide, kSide},
                             at::TensorOptions().memory_format(at::MemoryFormat::ChannelsLast));
  BatchWriter(set, 3, kMean, kStd)
      .Write(0, placement, /*channels_last=*/true, out.data_ptr<float>());
  EXPECT_TRUE(out[0].equal(Reference(set.images[0], placement)));
}

TEST(BatchWriter, ShowsAGreyImageOnEveryChannel) {
  const LabelledImages grey{at::randint(0, 256, {1, 1, kSide, kSide}, at::kByte),
                            at::zeros({1}, at::kLong)};
  EXPECT_TRUE(Written(grey, 0, {}).equal(Normalised(grey.images[0].expand({3, kSide, kSide}))));
}

auto AsTuple(const Placement& p) { return std::make_tuple(p.shift_y, p.shift_x, p.mirrored); }

TEST(RandomPlacement, IsAFunctionOfItsArguments) {
  EXPECT_EQ(AsTuple(RandomPlacement(1, 2, 3, 4)), AsTuple(RandomPlacement(1, 2, 3, 4)));
}

// Each coordinate matters: among 64 positions some placement differs.
TEST(RandomPlacement, DiffersByEachArgument) {
  const auto differ = [](auto other) {
    for (std::uint64_t i = 0; i < 64; ++i) {
      if (AsTuple(RandomPlacement(1, 2, 3, i)) != AsTuple(other(i))) return true;
    }
    return false;
  };
  EXPECT_TRUE(differ([](std::uint64_t i) { return RandomPlacement(9, 2, 3, i); }));
  EXPECT_TRUE(differ([](std::uint64_t i) { return RandomPlacement(1, 9, 3, i); }));
  EXPECT_TRUE(differ([](std::uint64_t i) { return RandomPlacement(1, 2, 9, i); }));
  EXPECT_TRUE(differ([](std::uint64_t i) { return RandomPlacement(1, 2, 3, i + 1); }));
}

TEST(RandomPlacement, TakesEveryPlaceAboutEquallyOften) {
  constexpr int kDraws = 162 * 200;  // 9 * 9 * 2 placements
  std::map<std::tuple<std::int64_t, std::int64_t, bool>, int> counts;
  for (std::uint64_t i = 0; i < kDraws; ++i) ++counts[AsTuple(RandomPlacement(0, 0, 0, i))];
  EXPECT_EQ(counts.size(), 162u);
  for (const auto& [placement, count] : counts) {
    EXPECT_GT(count, 120);
    EXPECT_LT(count, 280);
  }
}

}  // namespace
}  // namespace ddprun
