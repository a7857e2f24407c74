// SPDX-License-Identifier: Apache-2.0
// Which file this process executes: what is installed with it lies beside.
#pragma once

#include <filesystem>
#include <system_error>

namespace ddprun {

// Absolute. Empty: it cannot be told, as without /proc.
inline std::filesystem::path OwnProgram() {
  std::error_code ignored;
  return std::filesystem::read_symlink("/proc/self/exe", ignored);
}

}  // namespace ddprun
