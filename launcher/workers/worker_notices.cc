// SPDX-License-Identifier: Apache-2.0
#include "launcher/workers/worker_notices.h"

#include <chrono>
#include <utility>

#include "launcher/base/limits.h"
#include "launcher/processes/notice_message.h"
#include "launcher/processes/process_stat.h"

namespace ddprun {

WorkerNotices::Reached WorkerNotices::Begin(const Preemption& preemption, TimePoint now) {
  notice_ = preemption;
  deadline_ = now + preemption.remaining;
  next_look_.reset();
  Reached reached;
  for (int i = 0; i < table_.count(); ++i) {
    const bool got_it = Tell(i, now);
    if (!table_.IsRunning(i)) continue;
    ++reached.running;
    reached.reached += got_it;
  }
  return reached;
}

bool WorkerNotices::Tell(int worker, TimePoint now) {
  if (!Stands(now) || !table_[worker].hears_notices) return false;
  return table_.progress().Send(
      worker, NoticeMessage{.number = notice_->number,
                            .remaining = std::chrono::duration_cast<std::chrono::milliseconds>(
                                deadline_ - now),
                            .host = notice_->host,
                            .node_rank = notice_->node_rank,
                            .reason = notice_->reason});
}

bool WorkerNotices::OnSaved(int worker, std::uint64_t number) {
  return std::exchange(table_[worker].notice_saved, number) != number;
}

std::optional<std::uint64_t> WorkerNotices::SavedByAll(TimePoint now) const {
  if (!Stands(now)) return std::nullopt;
  bool any = false;
  for (int i = 0; i < table_.size(); ++i) {
    if (!table_.IsRunning(i)) continue;
    if (table_[i].notice_saved != notice_->number) return std::nullopt;
    any = true;
  }
  return any ? std::optional(notice_->number) : std::nullopt;
}

// A worker without a handler, as one that has just been started, would be killed by the signal. To
// the worker alone: its helper processes have no handler.
void WorkerNotices::Signal(bool round_runs, TimePoint now) {
  const int signal = config_.options.stopping.notices.worker_signal;
  if (signal == 0 || (next_look_.has_value() && now < *next_look_)) return;
  next_look_.reset();
  if (!Stands(now) || !round_runs) return;
  for (int i = 0; i < table_.size(); ++i) {
    if (!table_.IsRunning(i) || table_[i].notice_signaled == notice_->number) continue;
    if (HandlesSignal(*table_.pid(i), signal)) {
      table_[i].notice_signaled = notice_->number;
      table_.SignalProcess(i, signal);
    } else {
      next_look_ = now + kNoticeHandlerInterval;
    }
  }
}

}  // namespace ddprun
