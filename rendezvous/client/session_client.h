// SPDX-License-Identifier: Apache-2.0
// A node's end of the Session stream, without gRPC types.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <variant>

#include "absl/status/status.h"
#include "rendezvous/values/session_types.h"
#include "rendezvous/wire/service_channel.h"

namespace ddprun {

// The service could not be reached; the client keeps trying until its deadline. Sent when the
// reason changes.
struct Connecting {
  std::string reason;  // "connection refused", "no route to host", "cannot resolve 'node-0'"
  std::chrono::milliseconds remaining{0};
};

// The stream broke and the client reconnects; meanwhile the node keeps its place and its workers
// continue.
struct Reconnecting {
  std::string reason;
  std::chrono::milliseconds remaining{0};  // until the client gives up
};

// The new stream is open, and messages that the old one may have lost were sent again: reports by
// the client, directives by the service.
struct Reconnected {};

// The stream ended. No event follows. UNAVAILABLE: the connection broke and could not be restored,
// or the run is gone. DEADLINE_EXCEEDED: the service was not reached in time. FAILED_PRECONDITION:
// what answers does not fit this node (another token, plain text, no ddprun); the message is a
// whole sentence. OK: the service ended the stream after Finish or Refused.
struct SessionEnded {
  absl::Status status;
};

using SessionEvent = std::variant<Connecting, Reconnecting, Reconnected, Directive, SessionEnded>;

class SessionClient {
 public:
  // Called on a gRPC thread, one call at a time; must not block.
  using Handler = std::function<void(SessionEvent)>;

  // Connects, retrying with backoff for `connect_timeout`, sends `join`, and reports the events. If
  // the stream breaks after the service had accepted the node, the client reconnects with
  // `join.resume`: for the service's lease, or for kReconnectTimeout if the service is durable. It
  // does not if the lease is 0, or if nothing listens any more and the service is not durable.
  static std::unique_ptr<SessionClient> Open(std::shared_ptr<ServiceChannel> channel, Join join,
                                             std::chrono::milliseconds connect_timeout,
                                             Handler handler);

  // Ends the stream and returns when the handler will not be called again.
  virtual ~SessionClient() = default;

  // Queues a report, in order. Reports after the stream's end (SessionEnded) are dropped.
  virtual void Send(Report report) = 0;

  // On purpose: breaks the stream and reconnects after `pause`. False: there is no connection that
  // could break, because the service is in this process.
  virtual bool BreakFor(std::chrono::milliseconds /*pause*/) { return false; }
};

}  // namespace ddprun
