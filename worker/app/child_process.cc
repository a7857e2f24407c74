// SPDX-License-Identifier: Apache-2.0
#include "worker/app/child_process.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <limits>
#include <stdexcept>

namespace ddprun {
namespace {

constexpr int kCannotExecute = 127;  // a shell's exit code for it

std::runtime_error Failed(const std::string& what) {
  return std::runtime_error(what + ": " + std::strerror(errno));
}

// In the child, between fork and exec: only calls that are safe there. (posix_spawn cannot bind a
// child to its parent's life.)
[[noreturn]] void BecomeProgram(char** arguments, int log, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) _exit(kCannotExecute);  // the parent ended before prctl()
  const int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
  dup2(nothing, STDIN_FILENO);
  dup2(log, STDOUT_FILENO);
  dup2(log, STDERR_FILENO);
  execv(arguments[0], arguments);
  _exit(kCannotExecute);
}

}  // namespace

ChildProcess::ChildProcess(const std::vector<std::string>& command, const std::string& log) {
  const int file = open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644);
  if (file < 0) throw Failed(log + " cannot be written");
  std::vector<std::string> words = command;
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  const pid_t parent = getpid();
  pid_ = fork();
  if (pid_ == 0) BecomeProgram(arguments.data(), file, parent);
  close(file);
  if (pid_ < 0) throw Failed(command[0] + " cannot be started");
  pidfd_ = static_cast<int>(syscall(SYS_pidfd_open, pid_, 0u));
  if (pidfd_ < 0) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    throw Failed(command[0] + " cannot be watched");
  }
}

ChildProcess::~ChildProcess() {
  if (!ended_) {
    kill(pid_, SIGTERM);
    if (!Wait(kGrace)) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
  }
  close(pidfd_);
}

bool ChildProcess::Wait(std::chrono::milliseconds limit) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  pollfd watched{.fd = pidfd_, .events = POLLIN, .revents = 0};
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        deadline - std::chrono::steady_clock::now());
    if (left.count() <= 0) return false;
    const auto wait = std::min<long long>(left.count(), std::numeric_limits<int>::max());
    if (poll(&watched, 1, static_cast<int>(wait)) > 0) break;
  }
  int status = 0;
  waitpid(pid_, &status, 0);
  ended_ = true;
  exit_code_ = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  return true;
}

}  // namespace ddprun
