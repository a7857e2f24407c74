// SPDX-License-Identifier: Apache-2.0
#include "launcher/options_stopping.h"

#include "launcher/limits.h"
#include "rendezvous/limits.h"

namespace ddprun {
namespace {

// The service takes a node that has not stopped within kStopTimeout out of the run, and SIGKILL
// comes after SIGTERM.
constexpr double kTermTimeoutSecondsMax =
    static_cast<double>((kStopTimeout - kKillTimeout).count());

}  // namespace

const std::vector<Flag> kStopFlags = {
    {"--term-timeout", 0, "SECONDS", "between SIGTERM and SIGKILL when workers are stopped (10)"},
};

StopOptions ReadStopOptions(Reader& reader) {
  StopOptions options;
  options.term_timeout =
      reader.Seconds("--term-timeout", kTermTimeoutSecondsMax).value_or(kTermTimeoutDefault);
  return options;
}

}  // namespace ddprun
