// SPDX-License-Identifier: Apache-2.0
// Loss functions. Each is a .cc file in this folder that adds itself to Losses().
#pragma once

#include <ATen/core/Reduction.h>
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>

#include "worker/library/base/registry.h"

namespace ddprun {

struct LossOptions {
  std::int64_t reduction = at::Reduction::Mean;  // or Sum, over the batch
  double label_smoothing = 0;
};

// Takes scores (N x classes) and labels (int64, N); returns a scalar on their device, without
// waiting for it.
using Loss = std::function<at::Tensor(const at::Tensor& scores, const at::Tensor& labels)>;

using LossFactory = std::function<Loss(const LossOptions&)>;
inline Registry<LossFactory>& Losses() {
  static Registry<LossFactory> losses("--loss");
  return losses;
}

}  // namespace ddprun
