// SPDX-License-Identifier: Apache-2.0
#include "launcher/options_restarts.h"

namespace ddprun {
namespace {

constexpr int kRestartsMax = 1'000'000;

}  // namespace

const std::vector<Flag> kRestartFlags = {
    {"--max-restarts", 0, "N", "start all workers again after a failure, up to N times (0)"},
};

RestartOptions ReadRestartOptions(Reader& reader) {
  RestartOptions options;
  options.max_restarts = reader.Integer("--max-restarts", 0, kRestartsMax).value_or(0);
  return options;
}

}  // namespace ddprun
