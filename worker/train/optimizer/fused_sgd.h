// SPDX-License-Identifier: Apache-2.0
// SGD of all tensors in one kernel (kernels/sgd.cu), which also writes the weights of mixed
// precision. A multiplication and the addition behind it are rounded once, so that a value differs
// from torch.optim.SGD's by at most two units in the last place of the largest term.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "worker/library/accelerator/kernel_launcher.h"
#include "worker/library/files/named_tensors.h"

namespace ddprun {

// Null unless all of them are dense floats on one device that has the kernels.
KernelLauncher* SgdKernels(const NamedTensors& parameters);

struct FusedSgd {
  // Tensors of a step, as many values of each in the same order in memory. The last two may be
  // undefined: without momentum, and without a cast of the parameter to a type of 16 bits.
  struct Item {
    at::Tensor parameter;
    at::Tensor gradient;
    at::Tensor velocity;
    at::Tensor cast;
  };

  KernelLauncher& kernels;
  double momentum = 0;
  double decay = 0;
  bool nesterov = false;

  // With the learning rate `rate`, and nothing where `skip` is 1 (Optimizer::Step). The casts are
  // of one type.
  void Step(const std::vector<Item>& items, const at::Tensor& rate, const at::Tensor& skip) const;
};

}  // namespace ddprun
