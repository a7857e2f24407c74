// SPDX-License-Identifier: Apache-2.0
// Reports to the agent where this rank waits when it has reported no progress for a while. A thread
// does so, since the training thread hangs. A verdict can name what the agent received last, when
// the rank is killed or its collective times out.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>

#include "proto/collective.h"
#include "worker/library/progress/progress_sender.h"

namespace ddprun {

class StallReporter {
 public:
  // Below any limit that a person sets for a hang, and above the time of an ordinary step.
  static constexpr std::chrono::milliseconds kFirstLook{1000};
  // While nothing changes it is looked at more and more rarely.
  static constexpr std::chrono::milliseconds kRarestLook{16'000};

  // `look` is called by the thread. Both must outlive this. The thread ends with Stop().
  StallReporter(ProgressSender& progress, std::function<CollectivePlace()> look,
                std::chrono::milliseconds first_look = kFirstLook);
  ~StallReporter() { Stop(); }
  StallReporter(const StallReporter&) = delete;
  StallReporter& operator=(const StallReporter&) = delete;

  // What is known from now on would be of a rank that gives up, whose collectives end unfinished.
  void Stop();

 private:
  void Watch();

  ProgressSender& progress_;
  const std::function<CollectivePlace()> look_;
  const std::chrono::milliseconds first_look_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace ddprun
