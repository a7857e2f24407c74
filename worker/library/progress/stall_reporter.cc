// SPDX-License-Identifier: Apache-2.0
#include "worker/library/progress/stall_reporter.h"

#include <algorithm>
#include <exception>
#include <utility>

namespace ddprun {

StallReporter::StallReporter(ProgressSender& progress, std::function<CollectivePlace()> look,
                             std::chrono::milliseconds first_look)
    : progress_(progress), look_(std::move(look)), first_look_(first_look) {
  if (progress_.is_heard()) thread_ = std::thread([this] { Watch(); });
}

void StallReporter::Stop() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    ending_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void StallReporter::Watch() {
  std::uint64_t words = progress_.words();
  std::chrono::milliseconds pause = first_look_;
  std::optional<CollectivePlace> told;
  std::unique_lock<std::mutex> lock(mutex_);
  while (!changed_.wait_for(lock, pause, [this] { return ending_; })) {
    const std::uint64_t words_now = progress_.words();
    if (words_now != words) {
      words = words_now;
      pause = first_look_;
      told.reset();
      continue;
    }
    pause = std::min<std::chrono::milliseconds>(2 * pause, kRarestLook);
    lock.unlock();
    try {
      CollectivePlace place = look_();
      if (place != told && progress_.SendPlace(place, words)) told = std::move(place);
    } catch (const std::exception&) {
      // A recorder that cannot be read leaves the verdict without these words.
    }
    lock.lock();
  }
}

}  // namespace ddprun
