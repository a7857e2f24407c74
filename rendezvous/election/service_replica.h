// SPDX-License-Identifier: Apache-2.0
// A rendezvous service of which several run, on different machines. One leads; the others stand by.
// Nodes find the leader by asking all of them (client/session_client.h).
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "rendezvous/base/addresses.h"
#include "rendezvous/observe/run_status.h"

namespace ddprun {

class ServiceReplica {
 public:
  // Both are called on a thread of this service.
  struct Callbacks {
    // A sentence for people: who leads.
    std::function<void(const std::string& sentence)> on_note;
    // Once: the service cannot go on, and must be destroyed.
    std::function<void(const absl::Status& why)> on_end;
  };

  // Ends all streams and stops. Another service may lead at once.
  virtual ~ServiceReplica() = default;

  virtual int port() const = 0;
  // "ADDRESS:PORT", as other machines reach it.
  virtual std::string target() const = 0;
  virtual bool leads() = 0;
  // As RendezvousServer's; empty while it stands by.
  virtual std::vector<RunStatus> Status() = 0;
  virtual void WaitUntilDrained(std::chrono::milliseconds timeout) = 0;
};

// Another descriptor of the same socket, for the servers that listen at it in turn.
absl::StatusOr<ListeningSocket> Share(const ListeningSocket& socket);

// "ADDRESS:PORT", as other machines reach it. UNAVAILABLE: it listens at all addresses, and this
// machine has none.
absl::StatusOr<std::string> TargetOf(const ListeningSocket& socket);

}  // namespace ddprun
