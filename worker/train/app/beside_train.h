// SPDX-License-Identifier: Apache-2.0
// The programs that train starts or becomes: ddprun, ddprun-plot.
#pragma once

#include <filesystem>
#include <string>
#include <system_error>

namespace ddprun {

// Beside train; or one folder above, as packages have it that bring a train for each version of
// LibTorch. The first of the two where neither exists.
inline std::string BesideTrain(const char* program) {
  std::error_code error;
  const std::filesystem::path folder =
      std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
  const std::filesystem::path above = folder.parent_path() / program;
  if (!std::filesystem::exists(folder / program, error) && std::filesystem::exists(above, error))
    return above;
  return folder / program;
}

}  // namespace ddprun
