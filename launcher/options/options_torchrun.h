// SPDX-License-Identifier: Apache-2.0
// Flags that torchrun has and ddprun has no use for: taken, so that a command line of torchrun's
// runs unchanged, or refused with what to use instead. Pure.
#pragma once

#include <string>
#include <vector>

#include "launcher/base/flags.h"

namespace ddprun {

struct TorchrunOptions {
  std::string event_log_handler = "null";  // console: events go to stderr, as torchrun's do
  std::vector<std::string> notes;          // on what has no effect
};

extern const std::vector<Flag> kTorchrunFlags;

TorchrunOptions ReadTorchrunOptions(Reader& reader);

}  // namespace ddprun
