// SPDX-License-Identifier: Apache-2.0
// Whether the kernel killed a worker because memory ran out. Two sources: the kill counter of the
// worker's memory cgroup (v2 or v1), and the kernel's log, which names the process, where this user
// may read it.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "rendezvous/base/owned_fd.h"
#include "rendezvous/values/session_types.h"

namespace ddprun {

// ---- What the kernel's files say (pure)

// Where a process's memory is counted: the cgroup's path as /proc/PID/cgroup has it.
struct MemoryCgroup {
  bool v2 = false;
  std::string path;
};
std::optional<MemoryCgroup> ParseCgroups(const std::string& proc_cgroup);

// The folder of that cgroup, by /proc/self/mountinfo; empty: not mounted here. `*mount_point` is
// the hierarchy's uppermost folder.
std::string CgroupFolder(const std::string& mountinfo, const MemoryCgroup& cgroup,
                         std::string* mount_point);

// "oom_kill N" of memory.events or memory.oom_control.
std::optional<std::int64_t> ParseOomKills(const std::string& text);

struct LoggedKill {
  pid_t pid = 0;
  std::int64_t resident_bytes = 0;  // 0: not said
  std::string limited_cgroup;       // whose limit was reached; empty: not said, or the machine's
};
// A line of the kernel's log, if it says that a process was killed for want of memory. Two lines
// do, one after the other, each with a part of it.
std::optional<LoggedKill> ParseKernelLog(const std::string& line);

// ---- The watch

class OomWatch {
 public:
  // `root` before /proc, /sys and /dev, for tests.
  explicit OomWatch(std::string root = "");

  // A round begins: what was counted so far is none of its workers.
  void Begin();

  // Of a process that was killed by a SIGKILL which this agent did not send, and is not reaped yet.
  std::optional<OomKill> Explain(pid_t pid);

 private:
  struct Place {
    bool v2 = false;
    std::string folder;
    std::string top;
  };
  std::string Read(const std::string& path) const;
  std::optional<Place> PlaceOf(const std::string& pid) const;
  std::optional<Place> PlaceOf(const MemoryCgroup& cgroup) const;
  std::int64_t KillsAt(const Place& place) const;
  void FillFromCgroup(const Place& place, OomKill& kill) const;
  void ReadKernelLog();

  const std::string root_;
  std::map<std::string, std::int64_t> kills_seen_;  // by cgroup folder
  OwnedFd kernel_log_;
  std::map<pid_t, LoggedKill> logged_;  // of this round
};

}  // namespace ddprun
