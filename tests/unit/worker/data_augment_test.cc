// SPDX-License-Identifier: Apache-2.0
#include "worker/data/augment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <map>
#include <tuple>

#include "tests/unit/worker/temp_files.h"
#include "worker/data/stored_images.h"

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

StoredImages Stored(const LabelledImages& set) {
  return {{set}, {.shape = {3, kSide, kSide}, .mean = kMean, .std = kStd}};
}

at::Tensor Written(const LabelledImages& set, std::int64_t index, const Placement& placement) {
  at::Tensor out = at::empty({3, kSide, kSide});
  Stored(set).WritePlaced(index, placement, /*channels_last=*/false, out.data_ptr<float>());
  return out;
}

at::Tensor WrittenByPixel(const LabelledImages& set, std::int64_t index,
                          const Placement& placement) {
  at::Tensor out = at::empty({kSide, kSide, 3});
  Stored(set).WritePlaced(index, placement, /*channels_last=*/true, out.data_ptr<float>());
  return out.permute({2, 0, 1});
}

// What torchvision's RandomCrop(32, padding=4) and hflip do, in tensor operations.
at::Tensor Reference(const at::Tensor& bytes, const Placement& placement) {
  const at::Tensor padded =
      at::constant_pad_nd(bytes, {kCropPadding, kCropPadding, kCropPadding, kCropPadding});
  const at::Tensor cut = padded.narrow(1, kCropPadding + placement.shift_y, kSide)
                             .narrow(2, kCropPadding + placement.shift_x, kSide);
  return Normalised(placement.mirrored ? cut.flip({2}) : cut);
}

TEST(StoredImages, NormalisesExactlyAsPython) {
  const auto set = Coloured();
  EXPECT_TRUE(Written(set, 1, {}).equal(Normalised(set.images[1])));
}

TEST(StoredImages, CutsAndMirrorsAtEveryPlacement) {
  const auto set = Coloured();
  for (std::int64_t y = -kCropPadding; y <= kCropPadding; ++y) {
    for (std::int64_t x = -kCropPadding; x <= kCropPadding; ++x) {
      for (const bool mirrored : {false, true}) {
        const Placement placement{y, x, mirrored};
        const at::Tensor expected = Reference(set.images[0], placement);
        EXPECT_TRUE(Written(set, 0, placement).equal(expected))
            << "shift " << y << ", " << x << (mirrored ? ", mirrored" : "");
        EXPECT_TRUE(WrittenByPixel(set, 0, placement).equal(expected))
            << "shift " << y << ", " << x << (mirrored ? ", mirrored" : "");
      }
    }
  }
}

TEST(StoredImages, ShowsAGreyImageOnEveryChannel) {
  const LabelledImages grey{at::randint(0, 256, {1, 1, kSide, kSide}, at::kByte),
                            at::zeros({1}, at::kLong)};
  const at::Tensor expected = Normalised(grey.images[0].expand({3, kSide, kSide}));
  EXPECT_TRUE(Written(grey, 0, {}).equal(expected));
  EXPECT_TRUE(WrittenByPixel(grey, 0, {}).equal(expected));
}

TEST(StoredImages, ShowsASmallImageInTheMiddle) {
  const LabelledImages small{at::randint(0, 256, {1, 1, 28, 28}, at::kByte),
                             at::zeros({1}, at::kLong)};
  const at::Tensor padded =
      at::constant_pad_nd(small.images[0], {2, 2, 2, 2}).expand({3, kSide, kSide});
  for (std::int64_t shift = -kCropPadding; shift <= kCropPadding; ++shift) {
    for (const bool mirrored : {false, true}) {
      const Placement placement{-shift, shift, mirrored};
      EXPECT_TRUE(Written(small, 0, placement).equal(Reference(padded, placement)));
      EXPECT_TRUE(WrittenByPixel(small, 0, placement).equal(Reference(padded, placement)));
    }
  }
}

// Two channels, an odd width, and parts that are views at a stride, as a file's records are.
TEST(StoredImages, TakesAnyShapeAndPartsThatAreViews) {
  const at::Tensor records = at::randint(0, 256, {7, 1 + 2 * 5 * 9}, at::kByte);
  const auto part = [&](std::int64_t first, std::int64_t count) {
    const at::Tensor rows = records.narrow(0, first, count);
    return LabelledImages{rows.narrow(1, 1, 90).as_strided({count, 2, 5, 9}, {91, 45, 9, 1}),
                          at::arange(first, first + count, at::kLong)};
  };
  const StoredImages set({part(0, 3), part(3, 1), part(4, 3)},
                         {.shape = {2, 5, 9}, .mean = {0, 0.5f}, .std = {1, 2}});
  ASSERT_EQ(set.size(), 7);
  for (std::int64_t i = 0; i < 7; ++i) {
    EXPECT_EQ(set.Label(i), i);
    const at::Tensor bytes = records[i].narrow(0, 1, 90).view({2, 5, 9}).to(at::kFloat).div(255);
    const at::Tensor expected = at::stack({bytes[0], bytes[1].sub(0.5).div(2)});
    at::Tensor planes = at::empty({2, 5, 9});
    set.Write(i, nullptr, /*channels_last=*/false, planes.data_ptr<float>());
    EXPECT_TRUE(planes.equal(expected));
    at::Tensor pixels = at::empty({5, 9, 2});
    set.Write(i, nullptr, /*channels_last=*/true, pixels.data_ptr<float>());
    EXPECT_TRUE(pixels.permute({2, 0, 1}).equal(expected));
  }
}

TEST(StoredImages, ADrawVariesThemUnlessTheyAreNotToBe) {
  const auto images = Coloured();
  const Draw draw{.seed = 1, .epoch = 2, .position = 3};
  const auto written = [&](bool varied) {
    const StoredImages set(
        {images}, {.shape = {3, kSide, kSide}, .mean = kMean, .std = kStd, .varied = varied});
    at::Tensor out = at::empty({3, kSide, kSide});
    set.Write(1, &draw, /*channels_last=*/false, out.data_ptr<float>());
    return out;
  };
  EXPECT_TRUE(written(true).equal(Reference(images.images[1], RandomPlacement(draw))));
  EXPECT_TRUE(written(false).equal(Normalised(images.images[1])));
}

TEST(CheckLabels, NamesTheFirstThatIsOut) {
  const LabelledImages set{at::zeros({3, 1, 2, 2}, at::kByte), at::tensor({0, 4, 5}, at::kLong)};
  EXPECT_NO_THROW(CheckLabels(set, 6, "file"));
  EXPECT_THAT(MessageOf<DataError>([&] { CheckLabels(set, 4, "file"); }),
              ::testing::HasSubstr("file: label 4 of image 1"));
}

auto AsTuple(const Placement& p) { return std::make_tuple(p.shift_y, p.shift_x, p.mirrored); }

TEST(RandomPlacement, IsAFunctionOfItsArguments) {
  EXPECT_EQ(AsTuple(RandomPlacement({1, 2, 4})), AsTuple(RandomPlacement({1, 2, 4})));
}

// Each coordinate matters: among 64 positions some placement differs.
TEST(RandomPlacement, DiffersByEachArgument) {
  const auto differ = [](auto other) {
    for (std::uint64_t i = 0; i < 64; ++i) {
      if (AsTuple(RandomPlacement({1, 2, i})) != AsTuple(other(i))) return true;
    }
    return false;
  };
  EXPECT_TRUE(differ([](std::uint64_t i) { return RandomPlacement({9, 2, i}); }));
  EXPECT_TRUE(differ([](std::uint64_t i) { return RandomPlacement({1, 9, i}); }));
  EXPECT_TRUE(differ([](std::uint64_t i) { return RandomPlacement({1, 2, i + 1}); }));
}

TEST(RandomPlacement, TakesEveryPlaceAboutEquallyOften) {
  constexpr int kDraws = 162 * 200;  // 9 * 9 * 2 placements
  std::map<std::tuple<std::int64_t, std::int64_t, bool>, int> counts;
  for (std::uint64_t i = 0; i < kDraws; ++i) ++counts[AsTuple(RandomPlacement({0, 0, i}))];
  EXPECT_EQ(counts.size(), 162u);
  for (const auto& [placement, count] : counts) {
    EXPECT_GT(count, 120);
    EXPECT_LT(count, 280);
  }
}

}  // namespace
}  // namespace ddprun
