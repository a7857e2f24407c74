// SPDX-License-Identifier: Apache-2.0
// Core: which events of a run are worth a message, and when each is due. Pure: no clock.
//
// The first message goes out at once; later ones at most one in kNotifyInterval, with what has
// happened meanwhile. The end of the run does not wait.
#pragma once

#include <chrono>
#include <cstddef>
#include <deque>
#include <optional>
#include <string>

#include "launcher/notify/notification.h"
#include "rendezvous/base/clock.h"
#include "rendezvous/observe/run_event.h"

namespace ddprun {

class NotifySchedule {
 public:
  // `alive`: how often a run says that it goes on, since silence would else mean nothing; 0: never.
  NotifySchedule(std::string host, std::chrono::milliseconds alive)
      : host_(std::move(host)), alive_(alive) {}

  void OnEvent(const RunEvent& event, TimePoint now);
  // `text`: the verdict; empty on success.
  void OnEnd(int exit_code, const std::string& text);

  // What is to be sent now. `progress`: of a run that only says that it goes on.
  std::optional<Notification> Take(const std::string& progress, TimePoint now);
  // Whether that was taken. If not, it is sent again with the next message; the last one once more,
  // kNotifyRetryInterval later.
  void OnResult(bool taken, TimePoint now);
  std::optional<TimePoint> NextDeadline() const;

 private:
  void Add(const char* event, std::string text);
  bool IsAliveDue(TimePoint now) const;

  const std::string host_;
  const std::chrono::milliseconds alive_;
  std::string run_id_;
  std::string event_;              // of what waits: the last one; empty: nothing waits
  std::deque<std::string> texts_;  // the last kNotifyTextsMax
  std::size_t left_out_ = 0;
  std::optional<int> rank_;
  std::optional<int> exit_code_;  // present: the run has ended
  bool begun_ = false;
  bool ended_ = false;  // and that was taken
  std::optional<TimePoint> sent_;
  std::optional<Notification> under_way_;
  TimePoint retry_{};
  std::optional<TimePoint> alive_since_;
};

}  // namespace ddprun
