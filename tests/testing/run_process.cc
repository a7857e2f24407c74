// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/run_process.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <fstream>
#include <stdexcept>

namespace ddprun {
namespace {

using Clock = std::chrono::steady_clock;

int PidfdOpen(pid_t pid) { return static_cast<int>(syscall(SYS_pidfd_open, pid, 0u)); }

int RemainingMs(Clock::time_point deadline) {
  const auto remaining =
      std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
  return static_cast<int>(std::max<std::int64_t>(remaining, 0));
}

std::vector<std::string> Environment(const std::map<std::string, std::string>& variables) {
  std::vector<std::string> entries;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    if (variables.count(text.substr(0, text.find('='))) == 0) entries.push_back(text);
  }
  for (const auto& [name, value] : variables) {
    if (!value.empty()) entries.push_back(name + "=" + value);
  }
  return entries;
}

std::vector<char*> Pointers(std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (std::string& string : strings) pointers.push_back(string.data());
  pointers.push_back(nullptr);
  return pointers;
}

// False: the pipe has ended.
bool Take(int fd, std::string& text) {
  char buffer[65536];
  while (true) {
    const ssize_t count = read(fd, buffer, sizeof(buffer));
    if (count <= 0) return count < 0;
    text.append(buffer, static_cast<std::size_t>(count));
  }
}

int CountOf(const std::string& text, const std::string& all) {
  int count = 0;
  for (std::size_t at = all.find(text); at != std::string::npos;
       at = all.find(text, at + text.size()))
    ++count;
  return count;
}

}  // namespace

RunningProcess::RunningProcess(std::vector<std::string> argv,
                               const std::map<std::string, std::string>& variables) {
  int out[2];
  int err[2];
  if (pipe2(out, O_CLOEXEC) != 0 || pipe2(err, O_CLOEXEC) != 0) throw std::runtime_error("pipe2");
  out_pipe_ = OwnedFd(out[0]);
  err_pipe_ = OwnedFd(err[0]);
  const OwnedFd out_end(out[1]);
  const OwnedFd err_end(err[1]);
  fcntl(out[0], F_SETFL, O_NONBLOCK);
  fcntl(err[0], F_SETFL, O_NONBLOCK);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, err[1], STDERR_FILENO);
  std::vector<std::string> environment = Environment(variables);
  const int error = posix_spawnp(&pid_, argv[0].c_str(), &actions, nullptr, Pointers(argv).data(),
                                 Pointers(environment).data());
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) throw std::runtime_error("cannot start " + argv[0]);
  pidfd_ = OwnedFd(PidfdOpen(pid_));
}

RunningProcess::~RunningProcess() {
  if (ended_) return;
  kill(pid_, SIGTERM);  // so that it can stop its own children
  if (Wait() != -1) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

void RunningProcess::Signal(int signal) const { kill(pid_, signal); }

bool RunningProcess::ReadMore(Clock::time_point deadline) {
  pollfd fds[] = {{.fd = out_pipe_.get(), .events = POLLIN, .revents = 0},
                  {.fd = err_pipe_.get(), .events = POLLIN, .revents = 0},
                  {.fd = ended_ ? -1 : pidfd_.get(), .events = POLLIN, .revents = 0}};
  if (poll(fds, 3, RemainingMs(deadline)) <= 0) return false;
  // The end first: what was written before it is then read below.
  if (fds[2].revents != 0 && waitpid(pid_, &status_, WNOHANG) == pid_) {
    ended_ = true;
    duration_ = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - started_);
  }
  if (out_pipe_.valid() && !Take(out_pipe_.get(), out_)) out_pipe_.Reset();
  if (err_pipe_.valid() && !Take(err_pipe_.get(), err_)) err_pipe_.Reset();
  return true;
}

bool RunningProcess::WaitForText(const std::string& text, int times) {
  const Clock::time_point deadline = Clock::now() + kTestDeadline;
  while (CountOf(text, out_) + CountOf(text, err_) < times) {
    if (ended_ || !ReadMore(deadline)) return false;
  }
  return true;
}

int RunningProcess::Wait() {
  const Clock::time_point deadline = Clock::now() + kTestDeadline;
  while (!ended_) {
    if (!ReadMore(deadline)) return -1;
  }
  return WIFEXITED(status_) ? WEXITSTATUS(status_) : 128 + WTERMSIG(status_);
}

ProcessWatch::ProcessWatch(pid_t pid) : pidfd_(PidfdOpen(pid)) {}

bool ProcessWatch::WaitForEnd() const {
  pollfd fd{.fd = pidfd_.get(), .events = POLLIN, .revents = 0};
  return poll(&fd, 1, RemainingMs(Clock::now() + kTestDeadline)) == 1;
}

std::vector<pid_t> ChildrenOf(pid_t pid) {
  const std::string number = std::to_string(pid);
  std::ifstream file("/proc/" + number + "/task/" + number + "/children");
  std::vector<pid_t> children;
  for (pid_t child = 0; file >> child;) children.push_back(child);
  return children;
}

}  // namespace ddprun
