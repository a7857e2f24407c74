// SPDX-License-Identifier: Apache-2.0
// Test-time augmentation: a test image is also evaluated mirrored and shifted; its scores are the
// weighted sum of all views.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "worker/train/config/choices.h"

namespace ddprun {

struct WeightedView {
  at::Tensor images;
  double weight = 1;
};

// Views of a batch (N x C x height x width, sides of at least 2 pixels, any device), in its memory
// format. The weights add up to 1. The edge of a shifted image repeats its own second row and
// column.
std::vector<WeightedView> ViewsOf(const at::Tensor& images, TestTimeAugmentation views);

}  // namespace ddprun
