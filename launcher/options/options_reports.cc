// SPDX-License-Identifier: Apache-2.0
#include "launcher/options/option_groups.h"

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

const std::vector<Flag> kVerdictFlags = {
    {"--verdict", 0, "text|json", "Format of a failed run's verdict (text); json: one line."},
    {"--verdict-file", 0, "FILE", "Also write the verdict to FILE as JSON, on success too."},
};

VerdictOptions ReadVerdictOptions(Reader& reader) {
  VerdictOptions options;
  options.form = reader.Choice<VerdictForm>(
      "--verdict", {{"text", VerdictForm::kText}, {"json", VerdictForm::kJson}},
      VerdictForm::kText);
  options.file = reader.Text("--verdict-file", "a file", "");
  return options;
}

}  // namespace ddprun
