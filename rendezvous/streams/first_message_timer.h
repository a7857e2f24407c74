// SPDX-License-Identifier: Apache-2.0
// Ends a stream whose peer opens it and then says nothing: it would be held for as long as the peer
// likes.
#pragma once

#include <grpcpp/alarm.h>

#include <atomic>
#include <chrono>
#include <memory>

#include "rendezvous/base/limits.h"

namespace ddprun {

// A member of the stream.
template <typename Stream>
class FirstMessageTimer {
 public:
  // Before the first read. `late` is called on a thread of gRPC's, unless Came() was first. Weakly
  // held: an alarm keeps its callback as long as it lives, and the stream holds the alarm.
  void Begin(const std::shared_ptr<Stream>& stream, void (*late)(Stream&)) {
    alarm_.Set(std::chrono::system_clock::now() + kFirstMessageTimeout,
               [this, weak = std::weak_ptr<Stream>(stream), late](bool ok) {
                 const std::shared_ptr<Stream> self = weak.lock();
                 State waiting = State::kWaiting;
                 if (ok && self != nullptr && state_.compare_exchange_strong(waiting, State::kLate))
                   late(*self);
               });
  }

  // With each message, and when the peer has gone. False: too late, the stream is being ended.
  bool Came() {
    State state = State::kWaiting;
    if (state_.compare_exchange_strong(state, State::kCame)) alarm_.Cancel();
    return state != State::kLate;
  }

 private:
  enum class State { kWaiting, kCame, kLate };

  std::atomic<State> state_{State::kWaiting};
  grpc::Alarm alarm_;
};

}  // namespace ddprun
