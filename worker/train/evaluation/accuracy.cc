// SPDX-License-Identifier: Apache-2.0
// The share of images whose label has the highest score.
#include "worker/train/evaluation/metric.h"
#include "worker/train/evaluation/metric_sums.h"

namespace ddprun {
namespace {

at::Tensor CountCorrect(const at::Tensor& scores, const at::Tensor& labels) {
  return (scores.argmax(1) == labels).sum();
}

const bool kAccuracyAdded = Metrics().Add(kAccuracyMetric, CountCorrect);

}  // namespace
}  // namespace ddprun
