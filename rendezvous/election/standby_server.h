// SPDX-License-Identifier: Apache-2.0
// What a service does at its address while another one leads: it holds the sessions that nodes open
// until it is known who leads, and sends all other calls to another service.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "rendezvous/base/addresses.h"
#include "rendezvous/security/credentials.h"

namespace grpc {
class Service;
}

namespace ddprun {

// Threadsafe.
class StandbyServer {
 public:
  // `on_session`: called on a gRPC thread for each session that is held from now on; must not
  // block. `another_service` is served, and outlives the server; null: none. INTERNAL: gRPC cannot
  // start with these credentials.
  static absl::StatusOr<std::unique_ptr<StandbyServer>> Start(
      ListeningSocket socket, const std::optional<TlsCredentials>& credentials,
      std::function<void()> on_session, grpc::Service* another_service = nullptr);

  // Ends the sessions with ABORTED: the node is to come back here at once, where another server
  // listens at the same socket.
  virtual ~StandbyServer() = default;

  virtual bool holds_sessions() = 0;

  // Ends the sessions with UNAVAILABLE: the node is to ask another service. `leader`: its address,
  // for people.
  virtual void SendAway(const std::string& leader) = 0;
};

}  // namespace ddprun
