// SPDX-License-Identifier: Apache-2.0
#include "worker/evaluation/metric.h"

namespace ddprun {

Registry<Metric>& Metrics() {
  static Registry<Metric> metrics("the metric");
  return metrics;
}

}  // namespace ddprun
