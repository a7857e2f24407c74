// SPDX-License-Identifier: Apache-2.0
// A replica of a service whose journal is in etcd: it leads by a lease, and when that is gone, so
// does another one.
//
// What leads is fenced by etcd: a leader that was stopped and wakes up cannot write, and sends
// nothing while it is not sure that it leads (etcd/leader_key.h, etcd/leader_term.h).
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "rendezvous/election/service_replica.h"
#include "rendezvous/etcd/etcd_client.h"
#include "rendezvous/service/server.h"

namespace ddprun {

struct ElectedServiceOptions {
  RendezvousServer::Options server;  // but for its journal
  // As a client of the service that leads: `server`'s own certificate is none of a client.
  std::optional<TlsCredentials> probe_credentials;
  EtcdAddress etcd;
  EtcdTlsFiles etcd_tls;
  // Waits where another service leads. Otherwise that is an error, once the lease of an earlier
  // process has had the time to expire.
  bool stands_by = true;
  ServiceReplica::Callbacks callbacks;
};

// Listens at the address at once. Errors: those of RendezvousServer::Start() and
// EtcdClient::Make().
absl::StatusOr<std::unique_ptr<ServiceReplica>> StartElectedService(ElectedServiceOptions options);

}  // namespace ddprun
