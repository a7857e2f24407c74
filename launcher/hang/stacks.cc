// SPDX-License-Identifier: Apache-2.0
#include "launcher/hang/stacks.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "launcher/base/limits.h"
#include "launcher/hang/stacks_words.h"
#include "launcher/processes/stuck_process.h"

namespace ddprun {
namespace {

constexpr char kStacksProgram[] = "ddprun-stacks";

OwnedFd OpenPidfd(pid_t pid) { return OwnedFd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0))); }

// Of a process that nothing was found out of: what the kernel says of it.
std::vector<std::string> KernelsWords(pid_t pid) {
  const StuckProcess process = LookAtStuckProcess(pid);
  std::vector<std::string> lines = {
      absl::StrCat("its stacks could not be read within ", kStacksTimeout.count(), " s; state ",
                   std::string(1, process.state),
                   process.wait_point.empty() ? "" : ", in the kernel in ", process.wait_point)};
  for (const absl::string_view line : absl::StrSplit(process.stack, '\n', absl::SkipEmpty())) {
    lines.push_back(absl::StrCat("  ", line));
  }
  return lines;
}

}  // namespace

Stacks ParseStacks(const std::string& text) {
  Stacks stacks;
  std::vector<std::string>* lines = nullptr;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    if (absl::ConsumePrefix(&line, kStacksProcessPrefix)) {
      pid_t pid = 0;
      lines = absl::SimpleAtoi(line, &pid) ? &stacks[pid] : nullptr;
    } else if (lines != nullptr && !line.empty()) {
      lines->emplace_back(line);
    }
  }
  return stacks;
}

absl::StatusOr<std::string> FindStacksProgram() {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  const std::string path = error ? kStacksProgram : self.parent_path() / kStacksProgram;
  if (!error && access(path.c_str(), X_OK) == 0) return path;
  return absl::NotFoundError(
      absl::StrCat("native stacks cannot be shown without ", path, "; install it beside ddprun"));
}

StackReader::~StackReader() {
  if (process_.valid()) syscall(SYS_pidfd_send_signal, process_.get(), SIGKILL, nullptr, 0);
}

absl::Status StackReader::Begin(const std::vector<Target>& targets, TimePoint now) {
  const absl::StatusOr<std::string> program = FindStacksProgram();
  if (!program.ok()) return program.status();
  std::vector<std::string> arguments = {*program};
  for (const Target& target : targets) {
    arguments.push_back(absl::StrCat(target.pid));
    arguments.push_back(target.file);
  }
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);

  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) != 0) {
    return absl::UnavailableError(
        absl::StrCat("native stacks cannot be read: no pipe: ", std::strerror(errno)));
  }
  OwnedFd read_end(ends[0]);
  const OwnedFd write_end(ends[1]);
  fcntl(write_end.get(), F_SETFL, 0);  // the helper's end waits
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, write_end.get(), STDOUT_FILENO);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none;
  sigemptyset(&none);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
  pid_t pid = 0;
  const int error =
      posix_spawn(&pid, program->c_str(), &actions, &attributes, argv.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) {
    return absl::UnavailableError(
        absl::StrCat("native stacks cannot be read: ", *program, ": ", std::strerror(error)));
  }
  // It cannot be reaped before the loop's next turn.
  process_ = OpenPidfd(pid);
  output_ = std::move(read_end);
  targets_ = targets;
  deadline_ = now + kStacksTimeout;
  text_.clear();
  return absl::OkStatus();
}

std::optional<TimePoint> StackReader::deadline() const {
  return IsReading() ? std::optional(deadline_) : std::nullopt;
}

std::optional<Stacks> StackReader::Take(TimePoint now) {
  if (!IsReading()) return std::nullopt;
  std::array<char, 1 << 16> buffer;
  ssize_t size = 0;
  while ((size = read(output_.get(), buffer.data(), buffer.size())) > 0) {
    if (text_.size() < kStacksBytesMax) text_.append(buffer.data(), static_cast<std::size_t>(size));
  }
  const bool ended = size == 0 || (size < 0 && errno != EAGAIN && errno != EINTR);
  if (!ended && now < deadline_) return std::nullopt;
  output_.Reset();
  if (!ended) {
    syscall(SYS_pidfd_send_signal, process_.get(), SIGKILL, nullptr, 0);
    // The stop that it had asked for may still be under way.
    for (const Target& target : targets_) kill(target.pid, SIGCONT);
  }
  process_.Reset();
  Stacks stacks = ParseStacks(text_);
  for (const Target& target : targets_) {
    std::vector<std::string>& lines = stacks[target.pid];
    if (lines.empty()) lines = KernelsWords(target.pid);
  }
  return stacks;
}

}  // namespace ddprun
