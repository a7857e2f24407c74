// SPDX-License-Identifier: Apache-2.0
#include "launcher/hang/stacks.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "launcher/base/limits.h"
#include "launcher/placement/worker_environ.h"
#include "launcher/processes/process_stat.h"
#include "launcher/processes/spawn.h"
#include "rendezvous/base/own_program.h"
#include "rendezvous/base/printable.h"

namespace ddprun {
namespace {

constexpr char kStacksProgram[] = "ddprun-stacks";

// What the kernel reports about a process whose stacks could not be read.
std::vector<std::string> KernelReport(pid_t pid) {
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
      lines->push_back(Printable(line));
    }
  }
  return stacks;
}

absl::StatusOr<std::string> FindStacksProgram() {
  const std::filesystem::path own = OwnProgram();
  const std::string path = own.parent_path() / kStacksProgram;
  if (!own.empty() && access(path.c_str(), X_OK) == 0) return path;
  return absl::NotFoundError(
      absl::StrCat("native stacks cannot be shown without ", path, "; install it beside ddprun"));
}

StackReader::~StackReader() {
  if (IsReading()) kill(helper_, SIGKILL);
}

absl::Status StackReader::Begin(const std::vector<Target>& targets, TimePoint now) {
  const absl::StatusOr<std::string> program = FindStacksProgram();
  if (!program.ok()) return program.status();
  std::vector<std::string> arguments = {*program};
  for (const Target& target : targets) {
    arguments.push_back(absl::StrCat(target.pid));
    arguments.push_back(target.file);
  }
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) != 0) {
    return absl::UnavailableError(
        absl::StrCat("native stacks cannot be read: no pipe: ", std::strerror(errno)));
  }
  OwnedFd read_end(ends[0]);
  const OwnedFd write_end(ends[1]);
  fcntl(write_end.get(), F_SETFL, 0);  // the helper's end waits
  const OwnedFd nothing(open("/dev/null", O_RDWR | O_CLOEXEC));
  SpawnRequest request{.path = *program,
                       .argv = std::move(arguments),
                       .environ = OwnEnviron(),
                       .in = nothing.get(),
                       .out = write_end.get(),
                       .err = nothing.get()};
  sigemptyset(&request.signal_mask);
  rlimit file_limit{};
  getrlimit(RLIMIT_NOFILE, &file_limit);
  Spawned helper = SpawnProcess(request, file_limit);
  if (helper.outcome.has_value()) {
    return absl::UnavailableError(absl::StrCat("native stacks cannot be read: ",
                                               std::get<SpawnFailed>(*helper.outcome).message));
  }
  helper_ = helper.pid;
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
    kill(helper_, SIGKILL);
    // A stop that the helper has requested may still be pending.
    for (const Target& target : targets_) kill(target.pid, SIGCONT);
  }
  Stacks stacks = ParseStacks(text_);
  for (const Target& target : targets_) {
    std::vector<std::string>& lines = stacks[target.pid];
    if (lines.empty()) lines = KernelReport(target.pid);
  }
  return stacks;
}

}  // namespace ddprun
