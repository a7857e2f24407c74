// SPDX-License-Identifier: Apache-2.0
// Augmentation of images of one size in training: random crops of the padded image and mirroring,
// by default as torchvision's RandomCrop(size, padding=4) and RandomHorizontalFlip().
#pragma once

#include <cstdint>

#include "worker/train/data/dataset.h"

namespace ddprun {

// Where an image is cut from its padded self, and whether it is mirrored afterwards.
struct Placement {
  std::int64_t shift_y = 0;  // -padding to padding
  std::int64_t shift_x = 0;
  bool mirrored = false;
};

// A function of its argument only: the same image at the same place of the same epoch is cut the
// same way, whichever rank and thread does it and whatever came before.
Placement RandomPlacement(const Draw& draw);

// Whether an image is mirrored under Flip::kAlternating: a coin for each image in the first epoch,
// and from then on the other way round in each next one. Two epochs that follow each other show
// every image both ways, which a coin in each epoch does for half of them only (airbench's
// "derandomised" flip: Jordan, "94% on CIFAR-10 in 3.29 Seconds on a Single GPU", 2024, section
// 3.6).
bool AlternatingFlip(const Draw& draw);

// Whether an image that RandomPlacement() did not place (one that is cut out of a photograph) is
// mirrored; `coin` is what Flip::kRandom says.
bool Mirrored(const Draw& draw, bool coin);

}  // namespace ddprun
