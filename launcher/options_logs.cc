// SPDX-License-Identifier: Apache-2.0
#include "launcher/options_logs.h"

namespace ddprun {

const std::vector<Flag> kLogFlags = {
    {"--log-dir", 0, "DIR", "keep each worker's output in DIR/RUN/round_N/rank_R"},
};

LogOptions ReadLogOptions(Reader& reader) {
  LogOptions options;
  options.log_dir = reader.Text("--log-dir", "a folder", "");
  return options;
}

}  // namespace ddprun
