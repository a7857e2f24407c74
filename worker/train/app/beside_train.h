// SPDX-License-Identifier: Apache-2.0
// The programs that train starts or becomes: ddprun, ddprun-plot.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>
#include <vector>

namespace ddprun {

// Beside train; or one folder above, as packages have it that bring a train for each version of
// LibTorch. The first of the two where neither exists.
std::string BesideTrain(const char* program);

// Another program, which the kernel sends SIGTERM when this one ends for any reason.
class ChildProcess {
 public:
  // Its stdout and stderr are the file descriptor `output`, which is closed here. Throws
  // std::runtime_error.
  ChildProcess(const std::vector<std::string>& command, int output);
  // Ends the child if it still runs: SIGTERM, then after kGrace SIGKILL.
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  static constexpr std::chrono::seconds kGrace{40};  // ddprun gives its workers 30
  // Between two looks for its end where the kernel has no pidfds (before Linux 5.3), or a container
  // forbids them.
  static constexpr std::chrono::milliseconds kLookInterval{50};

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

// Draws RUN/summary.png, the curves of a run that has ended and its confusion matrix, by
// ddprun-plot. Returns its path, or "" if there is none: a picture is never worth a failure.
std::string DrawSummary(const std::string& run);

}  // namespace ddprun
