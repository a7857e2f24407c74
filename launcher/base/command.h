// SPDX-License-Identifier: Apache-2.0
// Exit codes and output that the commands of ddprun share.
#pragma once

#include <cstdio>
#include <string>

#include "absl/status/status.h"
#include "launcher/base/flag_names.h"

namespace ddprun {

inline constexpr int kExitFailure = 1;
inline constexpr int kExitUsage = 2;
inline constexpr int kExitNotExecutable = 126;
inline constexpr int kExitNotFound = 127;

inline int Fail(const absl::Status& status, int exit_code) {
  std::fprintf(stderr, "ddprun: %s\n", ForUsers(status.message()).c_str());
  return exit_code;
}

inline int Show(const std::string& text) {
  return std::fputs(text.c_str(), stdout) >= 0 && std::fflush(stdout) == 0 ? 0 : 1;
}

}  // namespace ddprun
