// SPDX-License-Identifier: Apache-2.0
// The folder of a process's cgroup, of version 1 or 2.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace ddprun {

struct CgroupFolder {
  bool v2 = false;
  std::string path;
  std::string top;  // the uppermost folder of its hierarchy that is mounted here

  // `path` and the folders above it up to `top`: each of them may set a limit.
  std::vector<std::string> AndAbove() const;
};

// `mountinfo` and `membership`: the texts of /proc/self/mountinfo and /proc/PID/cgroup. Version 1
// if it has `controller` ("memory", "cpu"; "": version 2 alone), else version 2. Absent: there is
// none, or it is outside of this namespace. Pure.
std::optional<CgroupFolder> FindCgroup(absl::string_view mountinfo, absl::string_view membership,
                                       absl::string_view controller);

// Folder of the process `pid`, a number or "self". `root` is the folder of /proc and /sys: "" for
// this machine; the result begins with it.
std::optional<CgroupFolder> ReadCgroup(const std::string& root, const std::string& pid,
                                       absl::string_view controller);

// Folder of the cgroup that /proc/PID/cgroup and the kernel's log call `name`, in that version's
// hierarchy.
std::optional<CgroupFolder> ReadCgroupNamed(const std::string& root, absl::string_view name,
                                            bool v2, absl::string_view controller);

}  // namespace ddprun
