// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/text.h"
#include "rendezvous/base/bounded_call.h"
#include "rendezvous/observe/metrics.h"
#include "rendezvous/observe/module_entry.h"

namespace ddprun {

absl::StatusOr<std::unique_ptr<MetricsExporter>> StartMetricsExporter(
    const std::string& address, int port, std::function<std::vector<MetricSeries>()> collect) {
  const absl::StatusOr<void*> entry = WebModuleEntry(kMetricsModuleEntry, "metrics are served");
  if (!entry.ok()) return entry.status();
  const auto start = reinterpret_cast<StartMetricsFunction>(*entry);
  const std::string bind = HostPort(address, port);
  std::string error;
  const SignalsBlocked blocked;
  std::unique_ptr<MetricsExporter> exporter(start(bind, &collect, &error));
  if (exporter == nullptr) {
    return absl::UnavailableError(absl::StrCat("cannot serve metrics at ", bind, " (", error,
                                               "); is the port in use? --metrics-port names "
                                               "another one"));
  }
  return exporter;
}

}  // namespace ddprun
