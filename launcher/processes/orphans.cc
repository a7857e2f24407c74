// SPDX-License-Identifier: Apache-2.0
#include "launcher/processes/orphans.h"

#include <dirent.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <string>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "launcher/base/limits.h"
#include "launcher/base/small_file.h"
#include "launcher/processes/process_stat.h"

namespace ddprun {
namespace {

using Clock = std::chrono::steady_clock;

std::vector<pid_t> NumbersIn(const char* path) {
  std::vector<pid_t> numbers;
  DIR* folder = opendir(path);
  if (folder == nullptr) return numbers;
  while (const dirent* entry = readdir(folder)) {
    const pid_t number = static_cast<pid_t>(std::strtol(entry->d_name, nullptr, 10));
    if (number > 0) numbers.push_back(number);
  }
  closedir(folder);
  return numbers;
}

// Only direct children: only this process can reap them, so their pids cannot have been reused.
std::vector<pid_t> Children() {
  std::optional<std::vector<pid_t>> children = ChildrenByThread();
  return children.has_value() ? *std::move(children) : ChildrenByParent();
}

void WaitForChild(Clock::duration timeout) {
  sigset_t child;
  sigemptyset(&child);
  sigaddset(&child, SIGCHLD);
  const auto nanoseconds = std::chrono::duration_cast<std::chrono::nanoseconds>(timeout).count();
  const timespec limit{static_cast<time_t>(nanoseconds / 1'000'000'000),
                       static_cast<long>(nanoseconds % 1'000'000'000)};
  sigtimedwait(&child, nullptr, &limit);
}

}  // namespace

std::optional<std::vector<pid_t>> ChildrenByThread() {
  const std::vector<pid_t> threads = NumbersIn("/proc/self/task");
  if (threads.empty()) return std::nullopt;  // no descriptor is left, or no /proc
  std::vector<pid_t> children;
  for (const pid_t thread : threads) {
    const std::string path = absl::StrCat("/proc/self/task/", thread, "/children");
    const std::string text = ReadSmallFile(path);
    // The children of a thread that has ended may now be one's that was looked at before.
    if (text.empty() && access(path.c_str(), R_OK) != 0) return std::nullopt;
    for (const absl::string_view word : absl::StrSplit(text, ' ', absl::SkipEmpty())) {
      pid_t pid = 0;
      if (absl::SimpleAtoi(word, &pid)) children.push_back(pid);
    }
  }
  std::sort(children.begin(), children.end());
  children.erase(std::unique(children.begin(), children.end()), children.end());
  return children;
}

std::vector<pid_t> ChildrenByParent() {
  std::vector<pid_t> children = NumbersIn("/proc");
  const pid_t self = getpid();
  std::erase_if(children, [self](pid_t pid) { return ParentOf(pid) != self; });
  return children;
}

void BecomeSubreaper() { prctl(PR_SET_CHILD_SUBREAPER, 1); }

std::vector<pid_t> KillAllChildren(std::chrono::milliseconds timeout) {
  const Clock::time_point deadline = Clock::now() + timeout;
  while (true) {
    // When a child ends, its children may be inherited: lists them again each time.
    std::optional<std::vector<pid_t>> children = KillChildrenOnce();
    if (!children.has_value()) return {};
    const Clock::time_point now = Clock::now();
    if (now >= deadline) return *std::move(children);
    // A process may have been inherited since then without a SIGCHLD, so each wait is bounded.
    WaitForChild(std::min<Clock::duration>(deadline - now, kSweepInterval));
  }
}

std::optional<std::vector<pid_t>> KillChildrenOnce(const std::function<bool(pid_t)>& is_known) {
  std::vector<pid_t> children = ReapAndListChildren(is_known);
  if (children.empty()) return std::nullopt;
  for (const pid_t pid : children) kill(pid, SIGKILL);
  return children;
}

std::vector<pid_t> ReapAndListChildren(const std::function<bool(pid_t)>& is_known) {
  // One that has ended and is known hides others behind it: they are listed and reaped later.
  if (!ReapOrphans(is_known)) return {};
  std::vector<pid_t> children = Children();
  std::erase_if(children, is_known);
  return children;
}

bool ReapOrphans(const std::function<bool(pid_t)>& is_known) {
  while (true) {
    siginfo_t info{};
    if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0) return errno != ECHILD;
    if (info.si_pid == 0) return true;
    if (is_known(info.si_pid))
      return true;  // its own reaper comes first; the next SIGCHLD or sweep finds the others
    waitpid(info.si_pid, nullptr, WNOHANG);
  }
}

LeftoverStages::LeftoverStages(TimePoint now, std::optional<std::chrono::milliseconds> grace) {
  ends_.fill(now);
  if (grace.has_value()) {
    const TimePoint term = now + *grace;
    ends_ = {std::min<TimePoint>(now + kNoticeDelay, term), term, term + kLeftoverTermTimeout, {}};
  }
  ends_.back() = EndOf(Stage::kTerm) + kSweepTimeout;
}

LeftoverStages::Stage LeftoverStages::At(TimePoint now) const {
  const auto end = std::find_if(ends_.begin(), ends_.end(), [&](TimePoint t) { return now < t; });
  return static_cast<Stage>(end - ends_.begin());
}

LeftoverStages::Action LeftoverStages::OnLook(const std::vector<pid_t>& left, TimePoint now) {
  Action action{.stage = At(now)};
  const bool changed =
      reported_.has_value() ? action.stage > *reported_ : action.stage == Stage::kTerm;
  if (!reported_.has_value()) reported_ = action.stage;
  action.is_news = changed && !left.empty() && action.stage != Stage::kGivenUp;
  if (action.is_news) reported_ = action.stage;
  action.signal = action.stage >= Stage::kKill   ? SIGKILL
                  : action.stage == Stage::kTerm ? SIGTERM
                                                 : 0;
  for (const pid_t pid : left) {
    if (action.signal == SIGKILL || (action.signal == SIGTERM && terminated_.insert(pid).second))
      action.targets.push_back(pid);
  }
  // In the grace SIGCHLD tells of the last one's end. Later processes may be inherited without it.
  action.next = action.signal == 0 ? EndOf(action.stage) : now + kSweepInterval;
  return action;
}

void LeftoverStages::Terminate(TimePoint now) {
  EndBy(Stage::kNoticed, now);
  EndBy(Stage::kTerm, now + kLeftoverTermTimeout);
}

void LeftoverStages::Kill(TimePoint now) { EndBy(Stage::kTerm, now); }

// That stage and those before it; the time for SIGKILL to act moves with them.
void LeftoverStages::EndBy(Stage stage, TimePoint time) {
  for (std::size_t i = 0; i <= static_cast<std::size_t>(stage); ++i)
    ends_[i] = std::min(ends_[i], time);
  ends_.back() = EndOf(Stage::kTerm) + kSweepTimeout;
}

}  // namespace ddprun
