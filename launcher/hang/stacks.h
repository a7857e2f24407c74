// SPDX-License-Identifier: Apache-2.0
// The stacks of workers, native and Python's, as another program sees them: `ddprun-stacks`, which
// lies beside this one, stops each thread for a moment, reads its frames and resumes it. A program
// of its own, since reading another process may block, and the code that reads symbols is large and
// may crash: it is killed at its deadline, and the agent continues in any case.
#pragma once

#include <sys/types.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "rendezvous/base/owned_fd.h"
#include "rendezvous/values/session_types.h"

namespace ddprun {

// Begins the part of a process in the output of ddprun-stacks, followed by its number.
inline constexpr char kStacksProcessPrefix[] = "=== process ";

// By process; a line has no line end.
using Stacks = std::map<pid_t, std::vector<std::string>>;

// Parses the output of ddprun-stacks; names of functions and files come from the worker. Pure.
Stacks ParseStacks(const std::string& text);

class StackReader {
 public:
  struct Target {
    pid_t pid = 0;
    std::string file;  // that gets them too, appended; empty: none
  };

  StackReader() = default;
  ~StackReader();
  StackReader(const StackReader&) = delete;
  StackReader& operator=(const StackReader&) = delete;

  // Not while IsReading(). The error is a sentence.
  absl::Status Begin(const std::vector<Target>& targets, TimePoint now);

  bool IsReading() const { return output_.valid(); }
  int fd() const { return output_.get(); }  // to be watched while IsReading()
  std::optional<TimePoint> deadline() const;

  // To be called when fd() is ready or the deadline is over. Absent: not yet. Otherwise the
  // result is final, even if something is missing.
  std::optional<Stacks> Take(TimePoint now);

 private:
  std::vector<Target> targets_;
  // While its end of the pipe is open, so that nobody else has its number.
  pid_t helper_ = 0;
  OwnedFd output_;
  TimePoint deadline_{};
  std::string text_;
};

// The program's path. NOT_FOUND: a sentence.
absl::StatusOr<std::string> FindStacksProgram();

}  // namespace ddprun
