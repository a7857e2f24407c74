// SPDX-License-Identifier: Apache-2.0
// A node's stream to the service's store, whatever carries it: a gRPC stream, or calls within the
// process where the service is in it.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "rendezvous/values/store_batch.h"

namespace ddprun {

class StoreLink {
 public:
  struct Handlers {
    // What there is to say now; false: nothing. On any thread, under no lock but the link's own.
    std::function<bool(StoreBatch*)> take_batch;
    // One call at a time, in order.
    std::function<void(std::vector<StoreReply>)> on_replies;
    // The last one. OK: it was closed. Of an error the message is for people.
    std::function<void(const absl::Status&)> on_end;
  };

  virtual ~StoreLink() = default;

  // Says the greeting, and what there is to say with it. The link keeps itself alive until the end.
  virtual void Begin() = 0;
  // There is something to say. Threadsafe; after the end it does nothing.
  virtual void Flush() = 0;
  virtual void Cancel() = 0;
};

// Opens links to one service.
class StoreConnector {
 public:
  virtual ~StoreConnector() = default;
  // Does not wait for the other side.
  virtual std::shared_ptr<StoreLink> Open(StoreHello hello, StoreLink::Handlers handlers) = 0;
};

}  // namespace ddprun
