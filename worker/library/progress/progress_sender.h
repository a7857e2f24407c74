// SPDX-License-Identifier: Apache-2.0
// Sends the progress of this worker to the agent (proto/progress_message.h). Never waits for the
// agent, and sends at most once per kSendInterval: messages in between are combined, and the last
// one is sent when the interval is over even if no other follows, since it shows where a worker
// hangs.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "proto/progress_message.h"

namespace ddprun {

class ProgressSender {
 public:
  static constexpr std::chrono::milliseconds kSendInterval{100};

  // If the path is empty or nobody listens there, nothing is sent.
  explicit ProgressSender(const std::string& socket_path);
  ~ProgressSender();
  ProgressSender(const ProgressSender&) = delete;
  ProgressSender& operator=(const ProgressSender&) = delete;

  // From any thread.
  void Send(const ProgressMessage& message);

  // Somebody may be listening.
  bool is_heard() const { return socket_ >= 0; }
  // How often Send() was called.
  std::uint64_t words() const { return words_; }
  // Sends at once where this rank waits, which is not progress. Returns false if Send() was called
  // since `words` was read, or if the agent cannot receive it now.
  bool SendPlace(const CollectivePlace& place, std::uint64_t words);

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
  std::atomic<std::uint64_t> words_{0};
  Clock::time_point next_{};  // not sent before
  std::thread thread_;        // of late words, once there are any
};

}  // namespace ddprun
