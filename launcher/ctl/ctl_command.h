// SPDX-License-Identifier: Apache-2.0
// ddpctl's commands, and `ddprun status`: each asks a rendezvous service and prints the answer.
#pragma once

#include <string>
#include <vector>

namespace ddprun {

// `arguments` from the command's name on. `program`: for messages. The exit code.
int RunCtl(const std::vector<std::string>& arguments, const std::string& program);

// `ddprun status`: `arguments` after its name.
int StatusCommand(std::vector<std::string> arguments);

}  // namespace ddprun
