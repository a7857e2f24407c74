// SPDX-License-Identifier: Apache-2.0
// Flags about what workers say: where it goes and how it is shown. Pure.
#pragma once

#include <string>
#include <vector>

#include "launcher/flags.h"

namespace ddprun {

struct LogOptions {
  std::string log_dir;  // empty: no files
};

extern const std::vector<Flag> kLogFlags;

LogOptions ReadLogOptions(Reader& reader);

}  // namespace ddprun
