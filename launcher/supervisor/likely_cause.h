// SPDX-License-Identifier: Apache-2.0
// Ends of workers that look alike and have different causes, and what tells them apart: a table.
// VERDICT.md has it, too. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "rendezvous/values/session_types.h"

namespace ddprun {

// What was found out on the worker's host as it ended.
struct EndEvidence {
  struct Room {
    std::int64_t total_bytes = 0;
    std::int64_t free_bytes = 0;
    bool has_inodes = true;
  };
  std::optional<double> cpu_seconds;          // that it used: user and system
  std::optional<double> cpu_seconds_limit;    // `ulimit -t`, the hard one
  std::optional<std::int64_t> memory_limit;   // `ulimit -v`, bytes
  std::optional<std::int64_t> file_limit;     // `ulimit -f`, bytes
  std::optional<std::int64_t> processes_max;  // `ulimit -u`
  std::optional<Room> shm;                    // of /dev/shm
  std::optional<Room> tmp;                    // of the folder for temporary files,
  std::string tmp_folder;                     // which is this one
  bool is_python = false;
  bool promises_no_more_memory =
      false;  // vm.overcommit_memory is 2 and Committed_AS is at its limit
};

// One sentence: what it probably was, and what to do. Empty: nothing is known beyond the failure
// itself.
std::string LikelyCause(const Failure& failure, const EndEvidence& evidence);

}  // namespace ddprun
