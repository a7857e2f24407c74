// SPDX-License-Identifier: Apache-2.0
#include "launcher/workers/sweep.h"

#include <csignal>
#include <utility>

#include "launcher/base/limits.h"
#include "launcher/processes/process_stat.h"

namespace ddprun {

ForkServerMatch Sweep::MatchForkServer(pid_t pid) const {
  return fork_server_ != nullptr ? fork_server_->Matches(pid) : ForkServerMatch::kNo;
}

// Absent: there is none, and none that may be one.
std::optional<std::vector<pid_t>> Sweep::Strangers() const {
  bool spared = false;  // it may be an orphan, or the fork server that is just being started
  std::vector<pid_t> left = ReapAndListChildren([this, &spared](pid_t pid) {
    const ForkServerMatch match = MatchForkServer(pid);
    spared |= match == ForkServerMatch::kUnknown;
    return match != ForkServerMatch::kNo || IsKnown(pid);
  });
  if (left.empty() && !spared) return std::nullopt;
  return left;
}

bool Sweep::Run(std::optional<std::chrono::milliseconds> grace, bool kept, TimePoint now,
                std::vector<Event>& events) {
  if (!stages_.has_value()) stages_.emplace(now, grace);
  const std::optional<std::vector<pid_t>> strangers = Strangers();
  const std::vector<pid_t> left = strangers.value_or(std::vector<pid_t>());
  const LeftoverStages::Action action = stages_->OnLook(left, now);
  if (action.is_news) {
    LeftBehind behind{.signal = action.signal,
                      .remaining = std::chrono::duration_cast<std::chrono::milliseconds>(
                          stages_->EndOf(action.stage) - now),
                      .processes = {}};
    for (const pid_t pid : left) behind.processes.push_back(NameOfProcess(pid));
    events.push_back(std::move(behind));
  }
  if (action.signal == SIGKILL && !kept) cgroup_.Kill();
  for (const pid_t pid : action.targets) kill(pid, action.signal);
  const bool gives_up = action.stage == LeftoverStages::Stage::kGivenUp;
  next_.reset();
  if (!strangers.has_value()) return true;
  for (const pid_t pid : gives_up ? left : std::vector<pid_t>())
    table_.ReportStuck(pid, kSweepTimeout);
  if (!gives_up) next_ = action.next;
  return gives_up;
}

void Sweep::End(bool kept) {
  stages_.reset();
  cgroup_.Remove(/*keep=*/kept);
}

void Sweep::OnStop(int signal, TimePoint now) {
  if (!stages_.has_value()) return;
  signal == SIGKILL ? stages_->Kill(now) : stages_->Terminate(now);
}

void Sweep::KillStrangers() {
  for (const pid_t pid : Strangers().value_or(std::vector<pid_t>())) kill(pid, SIGKILL);
}

void Sweep::ReapStrangers() {
  ReapOrphans(
      [this](pid_t pid) { return MatchForkServer(pid) != ForkServerMatch::kNo || IsKnown(pid); });
}

}  // namespace ddprun
