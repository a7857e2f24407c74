// SPDX-License-Identifier: Apache-2.0
#include "worker/train/data/augment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <map>
#include <tuple>

#include "tests/unit/worker/temp_files.h"
#include "worker/train/data/fixed_size_images.h"

namespace ddprun {
namespace {

constexpr std::int64_t kSide = 32;
constexpr std::int64_t kPadding = 4;

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

FixedSizeImages Stored(const LabelledImages& set) {
  return {{set}, {.shape = {3, kSide, kSide}, .mean = kMean, .std = kStd}};
}

at::Tensor Written(const LabelledImages& set, std::int64_t index, const Placement& placement,
                   Padding padding = Padding::kZero) {
  at::Tensor out = at::empty({3, kSide, kSide});
  Stored(set).WritePlaced(index, placement, /*channels_last=*/false, out.data_ptr<float>(),
                          padding);
  return out;
}

at::Tensor WrittenByPixel(const LabelledImages& set, std::int64_t index, const Placement& placement,
                          Padding padding = Padding::kZero) {
  at::Tensor out = at::empty({kSide, kSide, 3});
  Stored(set).WritePlaced(index, placement, /*channels_last=*/true, out.data_ptr<float>(), padding);
  return out.permute({2, 0, 1});
}

// What torchvision's RandomCrop(32, padding=4) and hflip do, in tensor operations.
at::Tensor Reference(const at::Tensor& bytes, const Placement& placement) {
  const at::Tensor padded = at::constant_pad_nd(bytes, {kPadding, kPadding, kPadding, kPadding});
  const at::Tensor cut = padded.narrow(1, kPadding + placement.shift_y, kSide)
                             .narrow(2, kPadding + placement.shift_x, kSide);
  return Normalised(placement.mirrored ? cut.flip({2}) : cut);
}

TEST(FixedSizeImages, NormalisesExactlyAsPython) {
  const auto set = Coloured();
  EXPECT_TRUE(Written(set, 1, {}).equal(Normalised(set.images[1])));
}

TEST(FixedSizeImages, CutsAndMirrorsAtEveryPlacement) {
  const auto set = Coloured();
  for (std::int64_t y = -kPadding; y <= kPadding; ++y) {
    for (std::int64_t x = -kPadding; x <= kPadding; ++x) {
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

// torch's "reflect" around the image as it is shown: a small one with its frame.
at::Tensor Reflected(const at::Tensor& shown, const Placement& placement) {
  const at::Tensor padded =
      at::reflection_pad2d(shown.to(at::kFloat), {kPadding, kPadding, kPadding, kPadding});
  const at::Tensor cut = padded.narrow(1, kPadding + placement.shift_y, kSide)
                             .narrow(2, kPadding + placement.shift_x, kSide);
  return Normalised((placement.mirrored ? cut.flip({2}) : cut).to(at::kByte));
}

TEST(FixedSizeImages, ReflectsThemselvesAtEveryPlacement) {
  const auto set = Coloured();
  const LabelledImages small{at::randint(0, 256, {1, 1, 28, 28}, at::kByte),
                             at::zeros({1}, at::kLong)};
  const at::Tensor framed =
      at::constant_pad_nd(small.images[0], {2, 2, 2, 2}).expand({3, kSide, kSide});
  for (std::int64_t y = -kPadding; y <= kPadding; ++y) {
    for (std::int64_t x = -kPadding; x <= kPadding; ++x) {
      for (const bool mirrored : {false, true}) {
        const Placement at{y, x, mirrored};
        const at::Tensor expected = Reflected(set.images[1], at);
        const at::Tensor small_expected = Reflected(framed, at);
        EXPECT_TRUE(Written(set, 1, at, Padding::kReflect).equal(expected)) << y << ", " << x;
        EXPECT_TRUE(WrittenByPixel(set, 1, at, Padding::kReflect).equal(expected))
            << y << ", " << x;
        EXPECT_TRUE(Written(small, 0, at, Padding::kReflect).equal(small_expected));
        EXPECT_TRUE(WrittenByPixel(small, 0, at, Padding::kReflect).equal(small_expected));
      }
    }
  }
}

TEST(FixedSizeImages, ShowsAGreyImageOnEveryChannel) {
  const LabelledImages grey{at::randint(0, 256, {1, 1, kSide, kSide}, at::kByte),
                            at::zeros({1}, at::kLong)};
  const at::Tensor expected = Normalised(grey.images[0].expand({3, kSide, kSide}));
  EXPECT_TRUE(Written(grey, 0, {}).equal(expected));
  EXPECT_TRUE(WrittenByPixel(grey, 0, {}).equal(expected));
}

TEST(FixedSizeImages, ShowsASmallImageInTheMiddle) {
  const LabelledImages small{at::randint(0, 256, {1, 1, 28, 28}, at::kByte),
                             at::zeros({1}, at::kLong)};
  const at::Tensor padded =
      at::constant_pad_nd(small.images[0], {2, 2, 2, 2}).expand({3, kSide, kSide});
  for (std::int64_t shift = -kPadding; shift <= kPadding; ++shift) {
    for (const bool mirrored : {false, true}) {
      const Placement placement{-shift, shift, mirrored};
      EXPECT_TRUE(Written(small, 0, placement).equal(Reference(padded, placement)));
      EXPECT_TRUE(WrittenByPixel(small, 0, placement).equal(Reference(padded, placement)));
    }
  }
}

// Two channels, an odd width, and parts that are views at a stride, as a file's records are.
TEST(FixedSizeImages, TakesAnyShapeAndPartsThatAreViews) {
  const at::Tensor records = at::randint(0, 256, {7, 1 + 2 * 5 * 9}, at::kByte);
  const auto part = [&](std::int64_t first, std::int64_t count) {
    const at::Tensor rows = records.narrow(0, first, count);
    return LabelledImages{rows.narrow(1, 1, 90).as_strided({count, 2, 5, 9}, {91, 45, 9, 1}),
                          at::arange(first, first + count, at::kLong)};
  };
  const FixedSizeImages set({part(0, 3), part(3, 1), part(4, 3)},
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

TEST(FixedSizeImages, ADrawVariesThemUnlessTheyAreNotToBe) {
  const auto images = Coloured();
  const Draw draw{.seed = 1, .epoch = 2, .position = 3};
  const auto written = [&](bool varied) {
    const FixedSizeImages set(
        {images}, {.shape = {3, kSide, kSide}, .mean = kMean, .std = kStd, .varied = varied});
    at::Tensor out = at::empty({3, kSide, kSide});
    set.Write(1, &draw, /*channels_last=*/false, out.data_ptr<float>());
    return out;
  };
  EXPECT_TRUE(written(true).equal(Reference(images.images[1], RandomPlacement(draw))));
  EXPECT_TRUE(written(false).equal(Normalised(images.images[1])));
}

TEST(FixedSizeImages, ADrawSaysWhatLiesAround) {
  const auto images = Coloured();
  Draw draw{.seed = 1, .epoch = 2, .options = {.mode = Padding::kReflect}};
  while (RandomPlacement(draw).shift_y == 0) ++draw.position;
  at::Tensor out = at::empty({3, kSide, kSide});
  Stored(images).Write(1, &draw, /*channels_last=*/false, out.data_ptr<float>());
  EXPECT_TRUE(out.equal(Reflected(images.images[1], RandomPlacement(draw))));
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

// Trainings of earlier versions go on from their checkpoints as they began.
TEST(RandomPlacement, IsWhatItAlwaysWas) {
  EXPECT_EQ(AsTuple(RandomPlacement({.seed = 0, .epoch = 0, .position = 0})),
            std::make_tuple(std::int64_t{-3}, std::int64_t{-4}, true));
  EXPECT_EQ(AsTuple(RandomPlacement({.seed = 1, .epoch = 2, .position = 3, .index = 9})),
            std::make_tuple(std::int64_t{-4}, std::int64_t{3}, false));
  EXPECT_EQ(AsTuple(RandomPlacement({.seed = 7, .epoch = 1, .position = 59999})),
            std::make_tuple(std::int64_t{2}, std::int64_t{1}, false));
}

TEST(RandomPlacement, GoesAsFarAsItsPadding) {
  for (const std::int64_t padding : {0, 2}) {
    std::map<std::int64_t, int> counts;
    for (std::uint64_t i = 0; i < 400; ++i) {
      const Placement placement = RandomPlacement({.position = i, .options = {.padding = padding}});
      ++counts[placement.shift_y];
      ++counts[placement.shift_x];
    }
    EXPECT_EQ(counts.size(), static_cast<std::size_t>(2 * padding + 1));
    EXPECT_EQ(counts.begin()->first, -padding);
  }
}

TEST(Flip, AlternatingTurnsEachImageRoundInEachEpoch) {
  int mirrored = 0;
  for (std::uint64_t index = 0; index < 1000; ++index) {
    const auto at = [&](std::uint64_t epoch) {
      // Wherever in the epoch's order it comes.
      return RandomPlacement({.seed = 3,
                              .epoch = epoch,
                              .position = (index * 7 + epoch) % 1000,
                              .index = index,
                              .options = {.flip = Flip::kAlternating}})
          .mirrored;
    };
    mirrored += at(0) ? 1 : 0;
    EXPECT_NE(at(0), at(1));
    EXPECT_EQ(at(0), at(2));
    EXPECT_NE(at(2), at(3));
  }
  EXPECT_GT(mirrored, 430);
  EXPECT_LT(mirrored, 570);
}

TEST(Flip, OffMirrorsNothingAndMovesNothingElse) {
  for (std::uint64_t i = 0; i < 64; ++i) {
    const Placement off = RandomPlacement({.position = i, .options = {.flip = Flip::kOff}});
    const Placement random = RandomPlacement({.position = i});
    EXPECT_FALSE(off.mirrored);
    EXPECT_EQ(off.shift_y, random.shift_y);
    EXPECT_EQ(off.shift_x, random.shift_x);
  }
}

}  // namespace
}  // namespace ddprun
