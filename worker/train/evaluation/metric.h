// SPDX-License-Identifier: Apache-2.0
// Metrics: numbers beside the loss that say how good a model is, of test and training images. Each
// is a .cc file in this folder that adds itself to Metrics(), and is then recorded as NAME/test and
// NAME/train.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>

#include "worker/library/base/registry.h"

namespace ddprun {

// Takes scores (N x classes) and labels (int64, N); returns the sum over the images as a scalar on
// their device, without waiting for it. The mean over all images is reported.
using Metric = std::function<at::Tensor(const at::Tensor& scores, const at::Tensor& labels)>;
inline Registry<Metric>& Metrics() {
  static Registry<Metric> metrics("the metric");
  return metrics;
}

}  // namespace ddprun
