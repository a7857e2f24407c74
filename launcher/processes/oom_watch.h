// SPDX-License-Identifier: Apache-2.0
// Detects workers that the kernel killed because memory ran out, from the kill counter of the
// worker's memory cgroup (v2 or v1) and from the kernel's log, which names the process, if this
// user may read it.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "launcher/base/cgroup_folder.h"
#include "rendezvous/base/owned_fd.h"
#include "rendezvous/values/session_types.h"

namespace ddprun {

// ---- Parsers of the kernel's files (pure)

// "oom_kill N" of memory.events or memory.oom_control.
std::optional<std::int64_t> ParseOomKills(const std::string& text);

struct LoggedKill {
  pid_t pid = 0;
  std::int64_t resident_bytes = 0;  // 0: not known
  std::string limited_cgroup;  // whose limit was reached; empty: not known, or the machine ran out
};
// Parses a line of the kernel's log that reports an out-of-memory kill. The kernel writes two such
// lines, each with a part of the data.
std::optional<LoggedKill> ParseKernelLog(const std::string& line);

// ---- The watch

class OomWatch {
 public:
  // `root` before /proc, /sys and /dev, for tests.
  explicit OomWatch(std::string root = "");

  // A round begins: kills counted so far do not concern its workers.
  void Begin();

  // For a process that is not reaped yet and was killed by a SIGKILL that this agent did not send.
  std::optional<OomKill> Explain(pid_t pid);

 private:
  std::int64_t KillsAt(const CgroupFolder& place) const;
  void FillFromCgroup(const CgroupFolder& place, OomKill& kill) const;
  void ReadKernelLog();

  const std::string root_;
  std::map<std::string, std::int64_t> kills_seen_;  // by cgroup folder
  OwnedFd kernel_log_;
  std::map<pid_t, LoggedKill> logged_;  // of this round
};

}  // namespace ddprun
