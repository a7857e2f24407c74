// SPDX-License-Identifier: Apache-2.0
// The streams of a run, as the run sees them. No gRPC type is named here.
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "rendezvous/store/store_hub.h"
#include "rendezvous/values/session_types.h"

namespace ddprun {

// A stream, as a run sees it.
class StreamSink {
 public:
  virtual ~StreamSink() = default;
  // Writes what was queued. Called without the run's lock.
  virtual void Flush() = 0;
};

// A node's stream. Push() only queues; Flush() ends the stream after End().
class DirectiveSink : public StreamSink {
 public:
  virtual void Push(Directive directive) = 0;
  virtual void End() = 0;
  // From which the node's connection comes; empty: the node is in this process.
  virtual std::string Address() { return ""; }
};

// A stream of the store, likewise.
class ReplySink : public StreamSink {
 public:
  virtual void Push(StoreReply reply) = 0;
  virtual void End(absl::Status status) = 0;
};

// A watcher of one run (ddpctl). Flush(): there is news to take. Replaced(): a newer watch has
// evicted this one.
class NewsSink : public StreamSink {
 public:
  virtual void Replaced(absl::Status why) = 0;
};

}  // namespace ddprun
