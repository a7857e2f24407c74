// SPDX-License-Identifier: Apache-2.0
// This process's limits (`ulimit`), which its child processes inherit.
#pragma once

#include <sys/resource.h>

#include <cstdint>
#include <optional>

namespace ddprun {

// The soft one, or the hard one. Absent: unlimited, or not known.
inline std::optional<std::int64_t> ResourceLimit(__rlimit_resource resource, bool hard = false) {
  rlimit limit{};
  if (getrlimit(resource, &limit) != 0) return std::nullopt;
  const rlim_t value = hard ? limit.rlim_max : limit.rlim_cur;
  if (value == RLIM_INFINITY) return std::nullopt;
  return static_cast<std::int64_t>(value);
}

// Of open files the soft one becomes the hard one: a service needs a file for each node, and a
// shell's default is 1024. Programs that use select() need the old one.
inline void RaiseFileLimit() {
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0) return;
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
}

}  // namespace ddprun
