// SPDX-License-Identifier: Apache-2.0
// A worker's client of the store on its agent's socket. It has no thread and links neither gRPC nor
// Protobuf: LibTorch's wheel carries another version of the latter.
#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "rendezvous/base/clock.h"
#include "rendezvous/base/owned_fd.h"
#include "rendezvous/tcpstore/store_op.h"

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

  // Sends `op` (its round is replaced) and waits for the answer: at most `op.timeout`, as the
  // server counts it, and a little more for the way. Threadsafe: each call under way has a
  // connection to itself. UNAVAILABLE if that breaks, DEADLINE_EXCEEDED if no answer comes in time;
  // other errors are the store's.
  StoreResult Call(StoreOp op);

 private:
  explicit StoreClient(Options options) : options_(std::move(options)) {}

  // One that no call uses, or a new one.
  absl::StatusOr<OwnedFd> TakeConnection(TimePoint deadline);
  absl::StatusOr<OwnedFd> Open() const;
  absl::Status Late(std::chrono::milliseconds patience) const;

  const Options options_;
  std::mutex mutex_;
  std::vector<OwnedFd> idle_;  // under mutex_
};

}  // namespace ddprun
