// SPDX-License-Identifier: Apache-2.0
// The store as an agent serves it to its own workers on a unix socket: what cannot be answered here
// goes up over the node's one connection, on one stream for the node, with the run and the node
// named by the agent, never by the worker. What is decided is in store_coalescer.h.
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
    // Of the service, where it is in this process; the channel is then not used.
    std::shared_ptr<StoreConnector> connector;
    std::string run_id;
    NodeId node_id;
    // How long operations wait for a service that went away, before they are answered UNAVAILABLE.
    // They are then performed once, whatever the service had done of them. 0: not at all.
    std::chrono::milliseconds reconnect_timeout{0};
  };

  // ALREADY_EXISTS if the path is taken, INVALID_ARGUMENT if it is too long.
  static absl::StatusOr<std::unique_ptr<StoreProxy>> Start(Options options);

  // Ends the workers' streams, removes the socket.
  virtual ~StoreProxy() = default;

  // Operations of another round are answered with ABORTED from now on, and those that wait are too.
  virtual void SetRound(RoundId round) = 0;

  // Makes the socket again if its file was removed. Errors as of Start().
  virtual absl::Status EnsureListening() = 0;

  // The service is there again: operations that wait for it are sent at once.
  virtual void ServiceIsBack() = 0;

  // The service is lost for good: this is the answer to all operations from now on, and to those
  // that wait.
  virtual void Fail(absl::Status status) = 0;
};

}  // namespace ddprun
