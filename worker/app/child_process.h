// SPDX-License-Identifier: Apache-2.0
// Runs another program to its end.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>
#include <vector>

namespace ddprun {

// The kernel sends it SIGTERM when this program ends, however that ends.
class ChildProcess {
 public:
  // Its output and errors go to the file `log`, which is made anew. Throws std::runtime_error.
  ChildProcess(const std::vector<std::string>& command, const std::string& log);
  // Ends it if it still runs: SIGTERM, then after kGrace SIGKILL.
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  static constexpr std::chrono::seconds kGrace{40};  // ddprun gives its workers 30

  // Waits for its end. True then, false at the deadline.
  bool Wait(std::chrono::milliseconds limit);

  // As a shell counts it, 128 and the signal's number if it was killed; after Wait() gave true.
  int exit_code() const { return exit_code_; }

 private:
  pid_t pid_ = -1;
  int pidfd_ = -1;
  int exit_code_ = -1;
  bool ended_ = false;
};

}  // namespace ddprun
