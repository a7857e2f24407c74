// SPDX-License-Identifier: Apache-2.0
// The Prometheus metrics of a service's runs and of an agent's workers. Names and meanings are in
// launcher/README.md. Nothing in it is secret: no address, no output, no environment.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "rendezvous/observe/run_observer.h"
#include "rendezvous/observe/run_status.h"

namespace ddprun {

// One value of a family.
struct MetricSample {
  std::vector<std::pair<std::string, std::string>> labels;
  double value = 0;
  std::uint64_t count = 0;  // of a summary, whose sum is `value`
};

struct MetricSeries {
  enum class Type { kGauge, kCounter, kSummary };
  std::string name;
  std::string help;
  Type type = Type::kGauge;
  std::vector<MetricSample> samples;
};

// Metrics of a service. At most kMetricsNodesMax nodes have metrics of their own.
std::vector<MetricSeries> ServiceMetrics(const std::vector<RunStatus>& runs,
                                         const std::map<std::string, RunCounters>& counters);

// Metrics of this process, as Prometheus client libraries name them, and ddprun_build_info.
std::vector<MetricSeries> ProcessMetrics();

// Serves GET /metrics until it is destroyed.
class MetricsExporter {
 public:
  virtual ~MetricsExporter() = default;
};

// `collect` is called on another thread at each scrape. The library that serves is loaded now:
// without metrics it costs nothing. UNAVAILABLE: the port is in use or the library is not
// there; one sentence.
absl::StatusOr<std::unique_ptr<MetricsExporter>> StartMetricsExporter(
    const std::string& address, int port, std::function<std::vector<MetricSeries>()> collect);

// ---- Its function in kWebModuleName

inline constexpr char kMetricsModuleEntry[] = "ddprun_start_metrics";

// Null: `*error` says why.
using StartMetricsFunction =
    MetricsExporter* (*)(const std::string& bind_address,
                         std::function<std::vector<MetricSeries>()>* collect, std::string* error);

}  // namespace ddprun
