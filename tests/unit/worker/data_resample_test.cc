// SPDX-License-Identifier: Apache-2.0
#include "worker/data/resample.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

namespace ddprun {
namespace {

RgbImage Noise(std::int64_t height, std::int64_t width) {
  torch::manual_seed(8);
  const at::Tensor bytes = at::randint(0, 256, {height, width, 3}, at::kByte);
  const auto* data = bytes.const_data_ptr<std::uint8_t>();
  return {{height, width}, {data, data + bytes.numel()}};
}

// side x side x 3
at::Tensor AsTensor(const std::vector<float>& values, std::int64_t side) {
  return at::tensor(values).view({side, side, 3});
}

// PyTorch's own, which torchvision resizes tensors with.
at::Tensor Reference(const RgbImage& image, std::int64_t top, std::int64_t left,
                     std::int64_t height, std::int64_t width, std::int64_t side) {
  const at::Tensor bytes = at::tensor(image.pixels)
                               .view({image.size.height, image.size.width, 3})
                               .narrow(0, top, height)
                               .narrow(1, left, width);
  return at::_upsample_bilinear2d_aa(bytes.permute({2, 0, 1}).unsqueeze(0).to(at::kFloat),
                                     {side, side}, /*align_corners=*/false)
      .squeeze(0)
      .permute({1, 2, 0});
}

double Largest(const at::Tensor& difference) { return difference.abs().max().item<double>(); }

TEST(Resample, IsPyTorchsForSmallerAndLargerImages) {
  for (const auto& [height, width] : {std::pair{64, 64}, {100, 37}, {20, 300}, {31, 32}, {7, 5}}) {
    const RgbImage image = Noise(height, width);
    const Axis vertical{.scale = height / 32.0, .high = height};
    const Axis horizontal{.scale = width / 32.0, .high = width};
    EXPECT_LT(Largest(AsTensor(Resample(image, vertical, horizontal, 32), 32) -
                      Reference(image, 0, 0, height, width, 32)),
              1e-3)
        << height << "x" << width;
  }
}

TEST(Resample, OfAPartSeesNothingOutsideOfIt) {
  const RgbImage image = Noise(90, 120);
  const Axis vertical{.begin = 11, .scale = 50 / 24.0, .low = 11, .high = 61};
  const Axis horizontal{.begin = 70, .scale = 40 / 24.0, .low = 70, .high = 110};
  EXPECT_LT(Largest(AsTensor(Resample(image, vertical, horizontal, 24), 24) -
                    Reference(image, 11, 70, 50, 40, 24)),
            1e-3);
}

// The middle of the whole that was resized, as CenterCrop after Resize.
TEST(Resample, OfTheMiddleIsThatOfTheWhole) {
  const RgbImage image = Noise(80, 80);
  const Axis axis{.begin = 4 * 2.0, .scale = 2, .low = 0, .high = 80};
  const at::Tensor whole = Reference(image, 0, 0, 80, 80, 40);
  EXPECT_LT(Largest(AsTensor(Resample(image, axis, axis, 32), 32) -
                    whole.narrow(0, 4, 32).narrow(1, 4, 32)),
            1e-3);
}

}  // namespace
}  // namespace ddprun
