// SPDX-License-Identifier: Apache-2.0
// --rdzv-conf: torchrun's settings of a rendezvous backend, for ddprun's own service. Each key that
// torchrun knows is applied, accepted without effect, or rejected with a replacement. Unknown and
// repeated keys, which torchrun ignores, are rejected. Pure.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "launcher/base/flags.h"

namespace ddprun {

struct RdzvConf {
  std::optional<std::chrono::milliseconds> join_timeout;
  std::optional<std::chrono::milliseconds> last_call;
  std::optional<std::chrono::milliseconds> lease;
  std::optional<bool> is_host;     // absent: the node that has the endpoint's address hosts it
  std::vector<std::string> notes;  // on keys without effect
};

RdzvConf ReadRdzvConf(Reader& reader);

}  // namespace ddprun
