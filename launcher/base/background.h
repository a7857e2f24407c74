// SPDX-License-Identifier: Apache-2.0
// Calls that a disk or a name service may delay, on threads of their own, for a loop that must go
// on. The loop watches fd(), and asks for results with a deadline of its own.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "rendezvous/base/bounded_call.h"
#include "rendezvous/base/event_fd.h"

namespace ddprun {

// The result of one call. A call that is not finished when this object goes is abandoned: its
// thread ends by itself.
template <typename Result>
class PendingCall {
 public:
  // The result, once. Absent: the call has not finished, or the result was taken.
  std::optional<Result> Take() {
    if (state_ == nullptr) return std::nullopt;
    const std::lock_guard<std::mutex> lock(state_->mutex);
    std::optional<Result> result = std::exchange(state_->result, std::nullopt);
    if (result.has_value()) done_ = true;
    return result;
  }

  // It was started, and its result was not taken.
  bool pending() const { return state_ != nullptr && !done_; }

 private:
  friend class Background;
  struct State {
    std::mutex mutex;
    std::optional<Result> result;
  };
  std::shared_ptr<State> state_;
  bool done_ = false;
};

class Background {
 public:
  // Readable when a call has finished.
  int fd() const { return notice_->fd(); }
  void ClearNotice() const { notice_->Clear(); }

  // For other threads that work for this loop: makes fd() readable, also when this object is gone.
  std::function<void()> Waker() const {
    return [notice = notice_] { notice->Notify(); };
  }

  // `call` must own all that it uses: its thread may outlive the caller. If no thread can be
  // started, the result never comes, and the caller's deadline decides.
  template <typename Result>
  PendingCall<Result> Start(std::function<Result()> call) const {
    PendingCall<Result> pending;
    pending.state_ = std::make_shared<typename PendingCall<Result>::State>();
    RunDetached([state = pending.state_, call = std::move(call), notice = notice_] {
      Result result = call();
      {
        const std::lock_guard<std::mutex> lock(state->mutex);
        state->result = std::move(result);
      }
      notice->Notify();
    });
    return pending;
  }

 private:
  std::shared_ptr<EventFd> notice_ = std::make_shared<EventFd>();
};

}  // namespace ddprun
