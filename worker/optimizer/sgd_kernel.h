// SPDX-License-Identifier: Apache-2.0
// One pass of SGD over a parameter, its gradient and its momentum: a third of the memory traffic of
// one operation after the other, with the same rounding as torch.optim.SGD's (on a CPU with FMA),
// which at::_fused_sgd_ has not.
#pragma once

#include <cstdint>

namespace ddprun {

struct SgdNumbers {
  float rate = 0;
  float momentum = 0;  // 0: `velocity` is not used and may be null
  float weight_decay = 0;
  bool nesterov = false;
};

// As torch/optim/sgd.py, _single_tensor_sgd(), without dampening. `gradient` is left as it is. A
// velocity begins as zeros: the first step then makes it the gradient, as there.
void SgdStep(float* parameter, const float* gradient, float* velocity, std::int64_t size,
             const SgdNumbers& numbers);

}  // namespace ddprun
