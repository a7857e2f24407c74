// SPDX-License-Identifier: Apache-2.0
// Metrics: numbers beside the loss that say how good a model is, of test and training images. Each
// is a .cc file in this folder that adds itself to Metrics(), and is then recorded as NAME/test and
// NAME/train.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>

#include "worker/base/registry.h"

namespace ddprun {

// Of scores (N x classes) and labels (int64, N): the sum over the images, a scalar on their device,
// which it does not wait for. What is reported is the mean over all images.
using Metric = std::function<at::Tensor(const at::Tensor& scores, const at::Tensor& labels)>;
inline Registry<Metric>& Metrics() {
  static Registry<Metric> metrics("the metric");
  return metrics;
}

}  // namespace ddprun
