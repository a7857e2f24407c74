// SPDX-License-Identifier: Apache-2.0
// Tells the agent how far this worker is (proto/progress_message.h). Never waits for it, and sends
// at most once in kSendInterval: what is said in between is put together, and the last word is sent
// when that time is over, also if nothing more is said, since it tells where a worker hangs.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "proto/progress_message.h"

namespace ddprun {

class ProgressSender {
 public:
  static constexpr std::chrono::milliseconds kSendInterval{100};

  // Empty, or where nobody listens: nothing is sent.
  explicit ProgressSender(const std::string& socket_path);
  ~ProgressSender();
  ProgressSender(const ProgressSender&) = delete;
  ProgressSender& operator=(const ProgressSender&) = delete;

  // From any thread.
  void Say(const ProgressMessage& message);

 private:
  using Clock = std::chrono::steady_clock;

  void SendLocked(Clock::time_point now);
  void SendLateWords();

  int socket_ = -1;  // constant after construction
  std::mutex mutex_;
  std::condition_variable changed_;
  ProgressMessage said_;  // all of it, so that a message that is lost costs nothing
  bool unsent_ = false;
  bool ending_ = false;
  Clock::time_point next_{};  // not sent before
  std::thread thread_;        // of late words, once there are any
};

}  // namespace ddprun
