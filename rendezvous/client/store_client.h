// SPDX-License-Identifier: Apache-2.0
// A worker's client of the store on its agent's socket. It has no thread: of the callers that wait,
// one reads for all. Without gRPC or protobuf types: the worker includes this beside LibTorch,
// whose wheel carries protobuf headers of another version.
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
    std::string target;        // "unix:/PATH" of the agent's socket
    RoundId round = kNoRound;  // put into every operation
    std::chrono::milliseconds connect_timeout{30'000};
  };

  // UNAVAILABLE if nothing answers at the target in time, INVALID_ARGUMENT if the path is too long.
  static absl::StatusOr<std::shared_ptr<StoreClient>> Connect(Options options);

  virtual ~StoreClient() = default;

  // Sends `op` (its round is replaced) and waits for the answer: at most `op.timeout`, as the
  // server counts it, and a little more for the way. Threadsafe: a waiting call does not hold up
  // another thread's.
  virtual StoreResult Call(StoreOp op) = 0;
};

}  // namespace ddprun
