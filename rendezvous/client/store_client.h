// SPDX-License-Identifier: Apache-2.0
// A caller's end of the store's stream, without gRPC or protobuf types: the worker includes this
// beside LibTorch, whose wheel carries protobuf headers of another version.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "rendezvous/values/store_types.h"

namespace ddprun {

class StoreClient {
 public:
  struct Options {
    std::string target;  // "unix:/PATH" of an agent, or "HOST:PORT" of the service itself
    std::string run_id;
    std::string node_id;
    RoundId round = kNoRound;  // put into every operation
    std::chrono::milliseconds connect_timeout{30'000};
  };

  // UNAVAILABLE if nothing answers at the target in time.
  static absl::StatusOr<std::shared_ptr<StoreClient>> Connect(Options options);

  virtual ~StoreClient() = default;

  // Sends `op` (its round is replaced) and waits for the answer: at most `op.timeout`, as the
  // server counts it, and a little more for the way. Threadsafe: a waiting call does not hold up
  // another thread's.
  virtual StoreResult Call(const StoreOp& op) = 0;

  virtual RoundId round() const = 0;
};

}  // namespace ddprun
