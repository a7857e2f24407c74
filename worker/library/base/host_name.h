// SPDX-License-Identifier: Apache-2.0
// The name of this machine, for output.
#pragma once

#include <unistd.h>

#include <climits>
#include <string>

namespace ddprun {

// "localhost" where the system does not tell.
inline std::string HostName() {
  char name[HOST_NAME_MAX + 1] = "";
  return gethostname(name, sizeof name - 1) == 0 && name[0] != '\0' ? name : "localhost";
}

}  // namespace ddprun
