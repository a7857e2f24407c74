// SPDX-License-Identifier: Apache-2.0
// A node's stream to the service's store: a gRPC stream, or calls within the process that hosts the
// service.
#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "rendezvous/values/store_types.h"

namespace ddprun {

// Whether a link waits for room for replies, under the link's lock.
class ReplyPause {
 public:
  // There is no room. False: there is again, as End() came first.
  bool Begin() {
    paused_ = !std::exchange(resumed_, false);
    return paused_;
  }
  // There is room. True if the link was paused.
  bool End() {
    resumed_ = !paused_;
    return std::exchange(paused_, false);
  }
  bool paused() const { return paused_; }

 private:
  bool paused_ = false;
  bool resumed_ = false;  // End() came before Begin()
};

class StoreLink {
 public:
  struct Handlers {
    // Fills the next message; false: there is nothing to send. Called on any thread, under no lock
    // but the link's own.
    std::function<bool(StoreBatch*)> take_batch;
    // Called in order, one call at a time. False: there is no room for more until Resume().
    std::function<bool(std::vector<StoreReply>)> on_replies;
    // The last call. OK: the stream was closed. The message of an error is for users.
    std::function<void(const absl::Status&)> on_end;
  };

  virtual ~StoreLink() = default;

  // Sends the hello and all pending requests. The link keeps itself alive until on_end.
  virtual void Begin() = 0;
  // There is something to send. Threadsafe; does nothing after the end.
  virtual void Flush() = 0;
  // There is room for replies again. Threadsafe.
  virtual void Resume() = 0;
  virtual void Cancel() = 0;
};

// Opens links to one service.
class StoreConnector {
 public:
  virtual ~StoreConnector() = default;
  // Does not block.
  virtual std::shared_ptr<StoreLink> Open(StoreHello hello, StoreLink::Handlers handlers) = 0;
};

}  // namespace ddprun
