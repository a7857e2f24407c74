// SPDX-License-Identifier: Apache-2.0
// Agent: what is known of this machine: notices that it will be taken away, and whether it is fit
// for a round (--health-check).
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "launcher/agent/agent.h"
#include "launcher/base/limits.h"
#include "rendezvous/base/signal_name.h"

namespace ddprun {

void Agent::LookForNotice(TimePoint now) {
  std::optional<std::string> problem;
  for (NoticeChange& change : notice_watch_.OnTurn(now, problem))
    std::visit([this](auto& one) { events_.push_back(std::move(one)); }, change);
  if (problem.has_value()) Print(*problem);
}

void Agent::TellWorkers(const Preemption& preemption, TimePoint now) {
  const WorkerNotices::Reached workers = workers_.notices().Begin(preemption, now);
  if (const auto saved = workers_.notices().SavedByAll(now))
    events_.push_back(WorkersSaved{*saved});
  const int signal = config_.options.stopping.notices.worker_signal;
  std::string text = absl::StrCat(ToSentence(preemption), "; ");
  if (workers.running == 0) {
    absl::StrAppend(&text, "no worker runs now, those that start are told");
  } else if (signal != 0) {
    absl::StrAppend(&text, "the workers that handle ", SignalName(signal), " get it");
  } else if (workers.reached == workers.running) {
    absl::StrAppend(&text, "the workers are told");
  } else if (workers.reached > 0) {
    absl::StrAppend(&text, workers.reached, " of ", workers.running, " workers are told");
  } else {
    absl::StrAppend(&text,
                    "no worker listens yet: ddprun.on_notice() in Python and "
                    "--notice-worker-signal let them");
  }
  Print(text);
}

void Agent::BeginHealthCheck(TimePoint now) {
  health_retry_.reset();
  health_.Begin(config_.health_command, config_.worker_signal_mask, poller_, now);
}

void Agent::OnHealthTurn(TimePoint now) {
  if (health_retry_.has_value() && *health_retry_ <= now) BeginHealthCheck(now);
  const std::optional<SideCommand::Result> result = health_.OnTurn(poller_, now);
  if (!result.has_value()) return;
  HealthChecked checked{.healthy = result->success()};
  if (!checked.healthy) {
    checked.reason = absl::StrCat("its health check ",
                                  WhyFailed(*result, health_.timeout(), "--health-check-timeout"));
  }
  if (!may_join_) {
    may_join_ = checked.healthy;
    checked.remaining = own_address_.TimeLeft(now);
    // The last one is at the end of --join-timeout.
    if (!may_join_ && checked.remaining.count() > 0)
      health_retry_ = now + std::min<std::chrono::milliseconds>(kHealthInterval, checked.remaining);
  }
  events_.push_back(std::move(checked));
}

// For --slurm-comment, by the node with rank 0, whose ranks are as far as the others.
std::string Agent::CommentText() const {
  if (state_.phase != Phase::kRunning || state_.round->node_rank != 0) return "";
  const Start& start = *state_.round;
  std::string text = absl::StrCat(
      "ddprun round ", ToNumber(start.round), ": ", start.world_size, " ranks on ",
      start.node_count, start.node_count == 1 ? " node, " : " nodes, ",
      start.restart_count - start.restarts_forgiven, " of ", start.restarts_max, " restarts used");
  const std::optional<Progress> progress = watch_.CurrentProgress();
  if (progress && progress->step >= 0) absl::StrAppend(&text, ", step ", progress->step);
  if (progress && progress->epoch >= 0) absl::StrAppend(&text, ", epoch ", progress->epoch);
  return text;
}

}  // namespace ddprun
