// SPDX-License-Identifier: Apache-2.0
// Flags for events and metrics of a run while it lasts. Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launcher/base/flags.h"

namespace ddprun {

// Where torchrun's console handler writes.
inline constexpr char kEventLogStderr[] = "/dev/stderr";

struct ObserveOptions {
  std::string event_log;  // a file or "-"; empty: none
  std::optional<int> metrics_port;
  std::string metrics_addr = "127.0.0.1";
};

extern const std::vector<Flag> kObserveFlags;

ObserveOptions ReadObserveOptions(Reader& reader);

}  // namespace ddprun
