// SPDX-License-Identifier: Apache-2.0
// How much memory a process has had at most, as the kernel counts it.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <fstream>
#include <string>

namespace ddprun {

// 0: there is no such process.
inline std::size_t PeakBytes(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/status");
  for (std::string word; file >> word;) {
    std::size_t kilobytes = 0;
    if (word == "VmHWM:" && file >> kilobytes) return kilobytes << 10;
  }
  return 0;
}

}  // namespace ddprun
