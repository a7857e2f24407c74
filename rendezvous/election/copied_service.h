// SPDX-License-Identifier: Apache-2.0
// A replica of a service whose journal is in the memory of the others: the first one leads, the
// others copy its journal. When it is lost, one of them leads after a person has said so; when it
// ends in order, at once. STANDBY.md says why no other way.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "rendezvous/election/service_replica.h"
#include "rendezvous/service/server.h"

namespace ddprun {

struct CopiedServiceOptions {
  RendezvousServer::Options server;  // but for its journal
  // All services, "HOST:PORT", the same list for all of them; kServicesMax at most.
  std::vector<std::string> services;
  std::size_t own = 0;  // its place among them
  // With which it calls the others: a node's.
  std::optional<TlsCredentials> node_credentials;
  ServiceReplica::Callbacks callbacks;
};

// Listens at the address at once. Errors: those of RendezvousServer::Start().
absl::StatusOr<std::unique_ptr<ServiceReplica>> StartCopiedService(CopiedServiceOptions options);

}  // namespace ddprun
