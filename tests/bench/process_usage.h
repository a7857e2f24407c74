// SPDX-License-Identifier: Apache-2.0
// What a process has used so far, as the kernel accounts it.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

namespace ddprun {

struct Used {
  double cpu_seconds = 0;  // user and system
  double resident_mb = 0;
};

// `pid`: a number, or "self". All zero if there is no such process.
inline Used UsedBy(const std::string& pid) {
  Used used;
  std::ifstream stat("/proc/" + pid + "/stat");
  std::string line;
  std::getline(stat, line);
  std::istringstream fields(line.substr(std::min(line.size(), line.rfind(')') + 2)));
  std::string field;
  double ticks = 0;
  for (int i = 3; fields >> field && i <= 15; ++i) {
    if (i >= 14) ticks += std::atof(field.c_str());
  }
  used.cpu_seconds = ticks / static_cast<double>(sysconf(_SC_CLK_TCK));
  std::ifstream status("/proc/" + pid + "/status");
  while (std::getline(status, line)) {
    if (line.starts_with("VmRSS:")) used.resident_mb = std::atof(line.c_str() + 6) * 1024 / 1e6;
  }
  return used;
}

}  // namespace ddprun
