// SPDX-License-Identifier: Apache-2.0
#include "launcher/options/options_observe.h"

namespace ddprun {

const std::vector<Flag> kObserveFlags = {
    {"--event-log", 0, "FILE", "Write the events of this node to FILE as JSON lines; -: stdout."},
    {"--metrics-port", 0, "PORT", "Serve Prometheus metrics at http://ADDRESS:PORT/metrics."},
    {"--metrics-addr", 0, "ADDRESS", "Address of this host for the metrics (127.0.0.1)."},
};

ObserveOptions ReadObserveOptions(Reader& reader) {
  ObserveOptions options;
  options.event_log = reader.Text("--event-log", "a file", "");
  options.metrics_port = reader.Integer("--metrics-port", 1, 65535);
  options.metrics_addr = reader.Text("--metrics-addr", "an address", options.metrics_addr);
  return options;
}

}  // namespace ddprun
