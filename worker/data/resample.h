// SPDX-License-Identifier: Apache-2.0
// Bilinear resizing with antialiasing, as Pillow and torchvision do it: each output pixel is a
// triangle's weighted mean, whose width grows with the scale, of the input pixels around it.
#pragma once

#include <cstdint>
#include <vector>

#include "worker/data/image_decoder.h"

namespace ddprun {

// One direction: output pixel i has its centre at begin + (i + 0.5) * scale of the input, and sees
// nothing outside of [low, high).
struct Axis {
  double begin = 0;
  double scale = 1;  // input pixels to one output pixel
  std::int64_t low = 0;
  std::int64_t high = 0;
};

// size x size x 3, values 0 to 255.
std::vector<float> Resample(const RgbImage& image, const Axis& vertical, const Axis& horizontal,
                            std::int64_t size);

}  // namespace ddprun
