// SPDX-License-Identifier: Apache-2.0
// Runs another program to its end.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>
#include <vector>

namespace ddprun {

// The kernel sends the child SIGTERM when this program ends for any reason.
class ChildProcess {
 public:
  // Writes the child's stdout and stderr to the file `log`, which is truncated. Throws
  // std::runtime_error.
  ChildProcess(const std::vector<std::string>& command, const std::string& log);
  // Ends the child if it still runs: SIGTERM, then after kGrace SIGKILL.
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  static constexpr std::chrono::seconds kGrace{40};  // ddprun gives its workers 30

  // Waits for the child's end. False: `limit` has passed.
  bool Wait(std::chrono::milliseconds limit);

  // 128 + N if signal N killed the child. Valid after Wait() has returned true.
  int exit_code() const { return exit_code_; }

 private:
  pid_t pid_ = -1;
  int pidfd_ = -1;
  int exit_code_ = -1;
  bool ended_ = false;
};

}  // namespace ddprun
