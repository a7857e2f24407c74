// SPDX-License-Identifier: Apache-2.0
// Runs a program as a person would, with a deadline on everything.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <map>
#include <string>
#include <vector>

#include "rendezvous/base/owned_fd.h"

namespace ddprun {

// Generous: only a test that fails waits for it.
inline constexpr std::chrono::seconds kTestDeadline{30};

class RunningProcess {
 public:
  // `variables` come on top of this process's environment; an empty value removes the variable. Its
  // stdin is empty.
  explicit RunningProcess(std::vector<std::string> argv,
                          const std::map<std::string, std::string>& variables = {});
  // Ends it if it still runs.
  ~RunningProcess();
  RunningProcess(const RunningProcess&) = delete;
  RunningProcess& operator=(const RunningProcess&) = delete;

  pid_t pid() const { return pid_; }
  void Signal(int signal) const;

  // Reads on until stdout and stderr together hold `text` this many times. False: the deadline or
  // the end came first.
  bool WaitForText(const std::string& text, int times = 1);
  // The exit code, or 128 + a signal's number; -1: it did not end in time.
  int Wait();
  // Its end was waited for: what it said.
  const std::string& out() const { return out_; }
  const std::string& err() const { return err_; }
  // From its start to its end.
  std::chrono::milliseconds duration() const { return duration_; }

 private:
  // Waits for more output or the end. False: the deadline came first.
  bool ReadMore(std::chrono::steady_clock::time_point deadline);

  pid_t pid_ = -1;
  OwnedFd pidfd_;
  OwnedFd out_pipe_;
  OwnedFd err_pipe_;
  std::string out_;
  std::string err_;
  int status_ = 0;
  bool ended_ = false;
  const std::chrono::steady_clock::time_point started_ = std::chrono::steady_clock::now();
  std::chrono::milliseconds duration_{0};
};

// Another process's end. Made while the process lives, so that its number cannot become another
// one's.
class ProcessWatch {
 public:
  explicit ProcessWatch(pid_t pid);
  bool found() const { return pidfd_.valid(); }
  // False: it still ran at the deadline.
  bool WaitForEnd() const;

 private:
  OwnedFd pidfd_;
};

std::vector<pid_t> ChildrenOf(pid_t pid);

}  // namespace ddprun
