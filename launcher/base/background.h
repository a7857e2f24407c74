// SPDX-License-Identifier: Apache-2.0
// Calls that a disk or a name service may delay, on threads of their own, for a loop that must go
// on. The loop watches fd(), and asks for results with a deadline of its own.
#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "rendezvous/base/owned_fd.h"

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
  Background() : fd_(std::make_shared<OwnedFd>(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC))) {}

  // Readable when a call has finished.
  int fd() const { return fd_->get(); }

  void ClearNotice() const {
    std::uint64_t count = 0;
    [[maybe_unused]] const ssize_t bytes = read(fd_->get(), &count, sizeof(count));
  }

  // For other threads that work for this loop: makes fd() readable, also when this object is gone.
  std::function<void()> Waker() const {
    return [fd = fd_] {
      const std::uint64_t one = 1;
      [[maybe_unused]] const ssize_t bytes = write(fd->get(), &one, sizeof(one));
    };
  }

  // `call` must own all that it uses: its thread may outlive the caller. If no thread can be made,
  // the result never comes.
  template <typename Result>
  PendingCall<Result> Start(std::function<Result()> call) const {
    PendingCall<Result> pending;
    pending.state_ = std::make_shared<typename PendingCall<Result>::State>();
    // Signals are for the program's own threads.
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    try {
      std::thread([state = pending.state_, call = std::move(call), wake = Waker()] {
        Result result = call();
        {
          const std::lock_guard<std::mutex> lock(state->mutex);
          state->result = std::move(result);
        }
        wake();
      }).detach();
    } catch (const std::system_error&) {  // the caller's deadline decides
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return pending;
  }

 private:
  std::shared_ptr<OwnedFd> fd_;
};

}  // namespace ddprun
