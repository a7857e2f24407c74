// SPDX-License-Identifier: Apache-2.0
// --rdzv-conf: what torchrun's settings of a rendezvous backend mean for ddprun's one service. Each
// key that torchrun knows is carried out, taken without effect, or refused with what to use
// instead; what torchrun silently ignores (unknown keys, keys given twice) is refused. Pure.
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
  std::optional<bool> is_host;     // absent: the node that has the endpoint's address
  std::vector<std::string> notes;  // on what has no effect
};

RdzvConf ReadRdzvConf(Reader& reader);

}  // namespace ddprun
