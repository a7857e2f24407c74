// SPDX-License-Identifier: Apache-2.0
// How images of one size are varied in training: cut out of their padded selves and mirrored, as
// torchvision's RandomCrop(size, padding=4) and RandomHorizontalFlip() do.
#pragma once

#include <cstdint>

#include "worker/data/dataset.h"

namespace ddprun {

inline constexpr std::int64_t kCropPadding = 4;

// Where an image is cut from its padded self, and whether it is mirrored. Padding is zero bytes, as
// black as the images' own background.
struct Placement {
  std::int64_t shift_y = 0;  // -kCropPadding to kCropPadding
  std::int64_t shift_x = 0;
  bool mirrored = false;
};

// A function of its argument only: the same image at the same place of the same epoch is cut the
// same way, whichever rank and thread does it and whatever came before.
Placement RandomPlacement(const Draw& draw);

}  // namespace ddprun
