// SPDX-License-Identifier: Apache-2.0
// Serves the store to an agent's workers on a unix socket: forwards their requests over the node's
// one connection, on one stream per node. The agent, not the worker, names the run and the node. The
// rules are in store_coalescer.h.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "rendezvous/proxy/store_link.h"
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
    // How long operations wait for a service that is gone before they fail with UNAVAILABLE. If it
    // comes back in time, each is performed exactly once. 0: they do not wait.
    std::chrono::milliseconds reconnect_timeout{0};
  };

  // ALREADY_EXISTS if the path is taken, INVALID_ARGUMENT if it is too long.
  static absl::StatusOr<std::unique_ptr<StoreProxy>> Start(Options options);

  // Ends the workers' streams and removes the socket.
  virtual ~StoreProxy() = default;

  // From now on operations of another round fail with ABORTED, including those that wait.
  virtual void SetRound(RoundId round) = 0;

  // Creates the socket again if its file was removed. Errors are those of Start().
  virtual absl::Status EnsureListening() = 0;

  // The service is there again: operations that wait for it are sent at once.
  virtual void ServiceIsBack() = 0;

  // The service is lost for good: all pending and later operations fail with this status.
  virtual void Fail(absl::Status status) = 0;
};

}  // namespace ddprun
