// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/resource.h>

#include <cstdint>
#include <optional>

namespace ddprun {

// This process's limit (`ulimit`), which its child processes inherit: the soft one, or the hard
// one. Absent: unlimited, or not known.
inline std::optional<std::int64_t> ResourceLimit(__rlimit_resource resource, bool hard = false) {
  rlimit limit{};
  if (getrlimit(resource, &limit) != 0) return std::nullopt;
  const rlim_t value = hard ? limit.rlim_max : limit.rlim_cur;
  if (value == RLIM_INFINITY) return std::nullopt;
  return static_cast<std::int64_t>(value);
}

}  // namespace ddprun
