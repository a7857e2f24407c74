// SPDX-License-Identifier: Apache-2.0
// Ends a stream whose peer opens it and then sends nothing, so that idle streams are not held
// forever.
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
  // Call it before the first read. `late` is called on a gRPC thread, unless Came() was first. The
  // stream is held weakly: an alarm keeps its callback as long as it lives, and the stream holds
  // the alarm.
  void Begin(const std::shared_ptr<Stream>& stream, void (*late)(Stream&)) {
    alarm_.Set(std::chrono::system_clock::now() + kFirstMessageTimeout,
               [this, weak = std::weak_ptr<Stream>(stream), late](bool ok) {
                 const std::shared_ptr<Stream> self = weak.lock();
                 State waiting = State::kWaiting;
                 if (ok && self != nullptr && state_.compare_exchange_strong(waiting, State::kLate))
                   late(*self);
               });
  }

  // Call it with each message, and when the peer is gone. False: too late, the stream is being
  // ended.
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
