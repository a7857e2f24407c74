// SPDX-License-Identifier: Apache-2.0
// Serves the store to an agent's workers on a unix socket, and to clients of torch's TCPStore on a
// TCP port: forwards their requests over the node's one connection, on one stream per node. The
// agent, not the worker, names the run and the node. The rules are in store_coalescer.h and
// tcpstore_session.h.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "rendezvous/base/addresses.h"
#include "rendezvous/proxy/store_link.h"
#include "rendezvous/values/connection_owner.h"
#include "rendezvous/values/session_types.h"
#include "rendezvous/wire/service_channel.h"

namespace ddprun {

class StoreProxy {
 public:
  struct Options {
    std::string socket_path;  // in a folder of mode 0700; at most 107 bytes
    std::shared_ptr<ServiceChannel> channel;
    // Set if the service is in this process; the channel is then not used.
    std::shared_ptr<StoreConnector> connector;
    std::string run_id;
    NodeId node_id;
    std::string space;  // the keys are those of this role; empty: of the run
    // How long operations wait for a service that is gone before they fail with UNAVAILABLE. If it
    // comes back in time, each is performed exactly once. 0: they do not wait.
    std::chrono::milliseconds reconnect_timeout{0};
    // Told, on any thread, why a TCP client was refused or its connection was closed. May be empty.
    std::function<void(const std::string&)> on_notice;
    // Asks the run's other nodes, without waiting, which users TCP clients from other hosts are of.
    // The answers, with the ids of the queries, are passed to OnOwners(). Called on the socket's
    // thread. Empty: clients from other hosts are refused.
    std::function<void(std::vector<OwnerQuery>)> ask_owners;
  };

  // ALREADY_EXISTS if the path is taken, INVALID_ARGUMENT if it is too long.
  static absl::StatusOr<std::unique_ptr<StoreProxy>> Start(Options options);

  // Ends the workers' streams and removes the socket.
  virtual ~StoreProxy() = default;

  // From now on operations of another round fail with ABORTED, including those that wait.
  virtual void SetRound(RoundId round) = 0;

  // Serves torch's TCPStore at `listener`, in place of an earlier one, to processes of this user on
  // this host, and to those on other hosts that a node of the run answers for
  // (Options::ask_owners). Until then nothing that they send is read. A client's operations belong
  // to the round in which it connected. RESOURCE_EXHAUSTED.
  virtual absl::Status ServeTcpStore(ListeningSocket listener) = 0;

  // Answers to ask_owners, of any queries and in any order. Threadsafe.
  virtual void OnOwners(const std::vector<OwnerAnswer>& answers) = 0;

  // Creates the socket again if its file was removed. Errors are those of Start().
  virtual absl::Status EnsureListening() = 0;

  // The service is there again: operations that wait for it are sent at once.
  virtual void ServiceIsBack() = 0;

  // The service is lost for good: all pending and later operations fail with this status.
  virtual void Fail(absl::Status status) = 0;
};

}  // namespace ddprun
