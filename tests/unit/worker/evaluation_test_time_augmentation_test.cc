// SPDX-License-Identifier: Apache-2.0
#include "worker/train/evaluation/test_time_augmentation.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

namespace ddprun {
namespace {

at::Tensor Images(at::MemoryFormat format) {
  torch::manual_seed(1);
  return at::randn({2, 3, 5, 7}).contiguous(format);
}

// What comes in from outside, as its own row and column beside the edge: torch's "reflect", by
// hand.
at::Tensor Shifted(const at::Tensor& images, std::int64_t by) {
  at::Tensor out = at::empty_like(images);
  const auto from = [by](std::int64_t at, std::int64_t size) {
    const std::int64_t place = at + by;
    return place < 0 ? -place : place < size ? place : 2 * (size - 1) - place;
  };
  for (std::int64_t y = 0; y < images.size(2); ++y) {
    for (std::int64_t x = 0; x < images.size(3); ++x) {
      out.select(2, y).select(2, x).copy_(
          images.select(2, from(y, images.size(2))).select(2, from(x, images.size(3))));
    }
  }
  return out;
}

TEST(ViewsOf, PlainIsTheImageItself) {
  const at::Tensor images = Images(at::MemoryFormat::Contiguous);
  const auto views = ViewsOf(images, TestTimeAugmentation::kPlain);
  ASSERT_EQ(views.size(), 1u);
  EXPECT_TRUE(views[0].images.is_same(images));
  EXPECT_EQ(views[0].weight, 1);
}

TEST(ViewsOf, MirrorIsHalfAndHalf) {
  const at::Tensor images = Images(at::MemoryFormat::Contiguous);
  const auto views = ViewsOf(images, TestTimeAugmentation::kMirror);
  ASSERT_EQ(views.size(), 2u);
  EXPECT_TRUE(views[0].images.equal(images));
  EXPECT_TRUE(views[1].images.equal(images.flip({3})));
  EXPECT_EQ(views[0].weight, 0.5);
  EXPECT_EQ(views[1].weight, 0.5);
}

TEST(ViewsOf, MirrorTranslateAreSixThatAddUpToOne) {
  for (const auto format : {at::MemoryFormat::Contiguous, at::MemoryFormat::ChannelsLast}) {
    const at::Tensor images = Images(format);
    const auto views = ViewsOf(images, TestTimeAugmentation::kMirrorTranslate);
    ASSERT_EQ(views.size(), 6u);
    const std::vector<at::Tensor> expected = {images, Shifted(images, -1), Shifted(images, 1)};
    double sum = 0;
    for (std::size_t i = 0; i < 3; ++i) {
      EXPECT_TRUE(views[2 * i].images.equal(expected[i])) << i;
      EXPECT_TRUE(views[2 * i + 1].images.equal(expected[i].flip({3}))) << i;
      EXPECT_EQ(views[2 * i].weight, i == 0 ? 0.25 : 0.125);
      EXPECT_EQ(views[2 * i + 1].weight, views[2 * i].weight);
      sum += views[2 * i].weight + views[2 * i + 1].weight;
    }
    for (const auto& view : views) EXPECT_TRUE(view.images.is_contiguous(format));
    EXPECT_EQ(sum, 1);
  }
}

}  // namespace
}  // namespace ddprun
