// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

namespace ddprun {

// The same bits as max_pool2d(x, 2) and, with `relu`, relu of it; in fewer passes and with less
// kept for backward where images are channels-last floats on a CPU with an even number of rows and
// columns. `x` is N x C x height x width, the result N x C x height / 2 x width / 2. Uses ATen's
// threads.
at::Tensor MaxPool2x2(const at::Tensor& x, bool relu = false);

}  // namespace ddprun
