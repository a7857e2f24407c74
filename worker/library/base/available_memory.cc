// SPDX-License-Identifier: Apache-2.0
#include "worker/library/base/available_memory.h"

#include <sys/resource.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>
#include <optional>
#include <string>

namespace ddprun {
namespace {

constexpr char kGroups[] = "/sys/fs/cgroup";

std::optional<std::int64_t> NumberIn(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::int64_t number = 0;
  if (file >> number) return number;
  return std::nullopt;  // "max", or there is no such file
}

std::int64_t OfMachine() {
  std::ifstream file("/proc/meminfo");
  for (std::string name; file >> name;) {
    std::int64_t kibibytes = 0;
    if (name == "MemAvailable:" && file >> kibibytes) return kibibytes * 1024;
    std::getline(file, name);
  }
  return std::numeric_limits<std::int64_t>::max();
}

std::filesystem::path OwnGroup() {
  std::ifstream file("/proc/self/cgroup");
  constexpr std::string_view kV2 = "0::/";
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(kV2)) return std::filesystem::path(kGroups) / line.substr(kV2.size());
  }
  return kGroups;
}

}  // namespace

std::int64_t AvailableMemory() {
  std::int64_t available = OfMachine();
  for (std::filesystem::path group = OwnGroup(); group.string().starts_with(kGroups);
       group = group.parent_path()) {
    const auto limit = NumberIn(group / "memory.max");
    const auto taken = NumberIn(group / "memory.current");
    if (limit && taken) available = std::min(available, std::max<std::int64_t>(*limit - *taken, 0));
  }
  return available;
}

std::int64_t PeakMemory() {
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  return std::int64_t{used.ru_maxrss} * 1024;
}

}  // namespace ddprun
