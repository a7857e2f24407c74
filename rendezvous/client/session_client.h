// SPDX-License-Identifier: Apache-2.0
// A node's end of the Session stream, without gRPC types, so that the agent's loop needs to know
// none.
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

// The service could not be reached just now; the client goes on trying until its deadline. Sent
// when the words change.
struct Connecting {
  std::string reason;  // "connection refused", "no route to host", "cannot resolve 'node-0'"
  std::chrono::milliseconds remaining{0};
};

// The stream broke and another is being made; the node keeps its place meanwhile, and its workers
// go on.
struct Reconnecting {
  std::string reason;
  std::chrono::milliseconds remaining{0};  // until the client gives up
};

// The new stream is there, and what may have been lost with the old one was said again: reports by
// the client, directives by the service.
struct Reconnected {};

// The stream ended. No event follows. UNAVAILABLE: the connection broke and could not be made
// again, or there was nothing to come back to. DEADLINE_EXCEEDED: the
// service was not reached in time. FAILED_PRECONDITION: the service was reached and the two do not
// fit (tokens, plain text, no ddprun): the message is one whole sentence. OK: the service ended it
// after Finish or Refused.
struct SessionEnded {
  absl::Status status;
};

using SessionEvent = std::variant<Connecting, Reconnecting, Reconnected, Directive, SessionEnded>;

class SessionClient {
 public:
  // Called on a thread of gRPC's, one call at a time; must only pass the event on.
  using Handler = std::function<void(SessionEvent)>;

  // Connects, retrying with backoff until `connect_timeout` is over, sends `join`, and reports what
  // comes. A stream that breaks after the service had accepted the node is made again with
  // `join.resume`: for the lease that the service gave, or for kReconnectTimeout if it is durable.
  // With a lease of 0, or if nothing listens any more and the service is not durable, there is
  // nothing to come back to.
  static std::unique_ptr<SessionClient> Open(std::shared_ptr<ServiceChannel> channel, Join join,
                                             std::chrono::milliseconds connect_timeout,
                                             Handler handler);

  // Ends the stream and returns when the handler will not be called again.
  virtual ~SessionClient() = default;

  // Queues a report, in order. What is queued after the stream's end is dropped: SessionEnded has
  // said so.
  virtual void Send(Report report) = 0;
};

}  // namespace ddprun
