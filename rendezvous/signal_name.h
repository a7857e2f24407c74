// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace ddprun {

// "SIGKILL"; "signal 77" for a number without a name.
std::string SignalName(int signal);

}  // namespace ddprun
