// SPDX-License-Identifier: Apache-2.0
// --notify: sends messages about the run to a webhook or to a program. Never in the way of the run:
// a thread of its own waits for the server, the agent's loop watches the program, and both have
// kNotifyTimeout. NOTIFY.md.
#pragma once

#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "launcher/base/background.h"
#include "launcher/base/poller.h"
#include "launcher/notify/notify_schedule.h"
#include "launcher/processes/side_command.h"

namespace ddprun {

class Notifier {
 public:
  // `wake`: called on any thread when an event waits for the loop.
  Notifier(NotifyTarget target, NotifySchedule schedule, const Background& background,
           std::function<void()> wake);

  // Threadsafe; may be called under a lock.
  void OnEvent(const RunEvent& event);

  // The agent's loop calls the rest.
  void OnEnd(int exit_code, const std::string& text) { schedule_.OnEnd(exit_code, text); }
  // Returns why a message could not be sent, the first time.
  std::optional<std::string> OnTurn(const std::function<std::string()>& progress,
                                    const sigset_t& signal_mask, Poller& poller, TimePoint now);
  std::optional<TimePoint> NextDeadline() const;
  pid_t pid() const { return command_.pid(); }
  // At the end of the run: sends what waits, for at most kNotifyLastTimeout.
  std::optional<std::string> Finish(const sigset_t& signal_mask, Poller& poller);

 private:
  bool sending() const { return posting_.valid() || command_.NextDeadline().has_value(); }
  std::optional<std::string> TakeProblem(Poller& poller, TimePoint now);
  void Send(const Notification& notification, const sigset_t& signal_mask, Poller& poller,
            TimePoint now);

  const NotifyTarget target_;
  NotifySchedule schedule_;
  const Background& background_;
  const std::function<void()> wake_;
  SideCommand command_;
  std::future<absl::Status> posting_;
  bool has_failed_ = false;

  absl::Mutex mutex_;
  std::vector<RunEvent> events_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ddprun
