// SPDX-License-Identifier: Apache-2.0
// Runs calls that a disk or a name service may delay on threads of their own, so that a loop never
// waits for them. The loop watches fd() and has its own deadline for each result.
#pragma once

#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "rendezvous/base/bounded_call.h"
#include "rendezvous/base/event_fd.h"

namespace ddprun {

// The result, once. Absent: the call has not finished, its result was taken, or it never started.
// Destroying the future abandons the call: its thread ends by itself.
template <typename Result>
std::optional<Result> TakeResult(std::future<Result>& call) {
  if (!call.valid() || call.wait_for(std::chrono::seconds(0)) != std::future_status::ready)
    return std::nullopt;
  return call.get();
}

class Background {
 public:
  // Readable when a call has finished.
  int fd() const { return notice_->fd(); }
  void ClearNotice() const { notice_->Clear(); }

  // For other threads that work for this loop: makes fd() readable, also after this object is
  // destroyed.
  std::function<void()> Waker() const {
    return [notice = notice_] { notice->Notify(); };
  }

  // `call` must own all that it uses: its thread may outlive the caller. If no thread can be
  // started, the result never comes, and the caller's deadline decides.
  template <typename Result>
  std::future<Result> Start(std::function<Result()> call) const {
    const auto promise = std::make_shared<std::promise<Result>>();
    std::future<Result> result = promise->get_future();
    if (RunDetached([promise, call = std::move(call), notice = notice_] {
          promise->set_value(call());
          notice->Notify();
        })) {
      unstarted_.push_back(promise);
    }
    return result;
  }

 private:
  std::shared_ptr<EventFd> notice_ = std::make_shared<EventFd>();
  mutable std::vector<std::shared_ptr<void>> unstarted_;  // promises that no thread will keep
};

}  // namespace ddprun
