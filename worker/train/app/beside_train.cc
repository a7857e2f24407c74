// SPDX-License-Identifier: Apache-2.0
#include "worker/train/app/beside_train.h"

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
#include <filesystem>
#include <limits>
#include <stdexcept>
#include <system_error>

#include "rendezvous/base/own_program.h"
#include "worker/train/metrics/metrics_writer.h"

namespace ddprun {
namespace {

constexpr int kCannotExecute = 127;  // a shell's exit code for it
// It takes a tenth of a second, unless fontconfig makes its cache anew.
constexpr std::chrono::seconds kPictureLimit{10};

// In the child, between fork and exec: only calls that are safe there. (posix_spawn cannot bind a
// child to its parent's life.)
[[noreturn]] void BecomeProgram(char** arguments, int output, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) _exit(kCannotExecute);  // the parent ended before prctl()
  const int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
  dup2(nothing, STDIN_FILENO);
  dup2(output, STDOUT_FILENO);
  dup2(output, STDERR_FILENO);
  execv(arguments[0], arguments);
  _exit(kCannotExecute);
}

}  // namespace

std::string BesideTrain(const char* program) {
  std::error_code error;
  const std::filesystem::path folder = OwnProgram().parent_path();
  const std::filesystem::path above = folder.parent_path() / program;
  if (!std::filesystem::exists(folder / program, error) && std::filesystem::exists(above, error))
    return above;
  return folder / program;
}

ChildProcess::ChildProcess(const std::vector<std::string>& command, int output) {
  std::vector<std::string> words = command;
  std::vector<char*> arguments;
  arguments.reserve(words.size() + 1);
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  const pid_t parent = getpid();
  pid_ = fork();
  if (pid_ == 0) BecomeProgram(arguments.data(), output, parent);
  const int error = errno;
  close(output);
  if (pid_ < 0)
    throw std::runtime_error(command[0] + " cannot be started: " + std::strerror(error));
  pidfd_ = static_cast<int>(syscall(SYS_pidfd_open, pid_, 0u));
}

ChildProcess::~ChildProcess() {
  if (!ended_) {
    kill(pid_, SIGTERM);
    if (!Wait(kGrace)) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
  }
  if (pidfd_ >= 0) close(pidfd_);
}

bool ChildProcess::Wait(std::chrono::milliseconds limit) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  pollfd watched{.fd = pidfd_, .events = POLLIN, .revents = 0};
  int status = 0;
  while (waitpid(pid_, &status, WNOHANG) != pid_) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        deadline - std::chrono::steady_clock::now());
    if (left.count() <= 0) return false;
    const auto longest = pidfd_ < 0 ? kLookInterval.count() : std::numeric_limits<int>::max();
    poll(&watched, 1, static_cast<int>(std::min<long long>(left.count(), longest)));
  }
  ended_ = true;
  exit_code_ = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  return true;
}

std::string DrawSummary(const std::string& run) {
  const std::string program = BesideTrain("ddprun-plot");
  const std::string picture = std::filesystem::path(run) / "summary.png";
  // To read metrics from a FIFO would wait for whatever writes there.
  std::error_code error;
  const bool has_metrics =
      std::filesystem::is_regular_file(std::filesystem::path(run) / kMetricsFileName, error);
  if (!has_metrics || access(program.c_str(), X_OK) != 0) return "";
  try {
    ChildProcess plot({program, "--output", picture, "--", run},
                      open("/dev/null", O_WRONLY | O_CLOEXEC));
    return plot.Wait(kPictureLimit) && plot.exit_code() == 0 ? picture : "";
  } catch (const std::runtime_error&) {
    return "";
  }
}

}  // namespace ddprun
