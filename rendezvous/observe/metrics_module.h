// SPDX-License-Identifier: Apache-2.0
// The one function of ddprun-metrics.so, which is loaded when metrics are wanted.
#pragma once

#include "rendezvous/observe/metrics.h"

namespace ddprun {

inline constexpr char kMetricsModuleName[] = "ddprun-metrics.so";
inline constexpr char kMetricsModuleEntry[] = "ddprun_start_metrics";

// Null: `*error` says why.
using StartMetricsFunction =
    MetricsExporter* (*)(const std::string& bind_address,
                         std::function<std::vector<MetricSeries>()>* collect, std::string* error);

}  // namespace ddprun
