// SPDX-License-Identifier: Apache-2.0
// The stores of this node's workers: the socket through which they reach the run's, and torch's
// TCPStore, where this node serves it. One, or with --ranks-by role one for each program.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "launcher/agent/node_session.h"
#include "launcher/agent/owner_lookups.h"
#include "launcher/base/background.h"
#include "launcher/workers/node_config.h"
#include "rendezvous/base/addresses.h"
#include "rendezvous/proxy/store_proxy.h"

namespace ddprun {

class WorkerStores {
 public:
  // `on_notice` is told, on any thread, why a client was refused. All must outlive the stores.
  WorkerStores(const NodeConfig& config, NodeSession& session, const Background& background,
               std::function<void(const std::string&)> on_notice)
      : config_(config),
        session_(session),
        on_notice_(std::move(on_notice)),
        owners_(background, [&session] { session.Wake(); }) {}

  // Chooses MASTER_PORT of the next round, if this node gets rank 0 (of a role): a new one in each,
  // so that a worker that is early does not meet the last round's store. `address`: at which the
  // other nodes reach this node's workers.
  absl::Status TakePorts(const std::string& address);
  int port() const { return doors_.front().port; }
  // For the service; empty: the run has none.
  std::vector<RoleWorkers> Roles() const;

  // Opens the stores of the round. Changes where `start` says that workers find them, if this node
  // serves them alone.
  absl::Status Serve(Start& start);
  void OnSessionEvent(const SessionEvent& event);
  void Close() { doors_.clear(); }

  // Who is let in at the TCPStore.
  OwnerLookups& owners() { return owners_; }
  void OnAnswers(OwnerAnswers& answers);

 private:
  struct Door {
    std::unique_ptr<StoreProxy> proxy;
    // Where this node will serve torch's TCPStore in the next round: other nodes' workers may
    // connect before this node hears that it began.
    std::optional<ListeningSocket> listener;
    int port = 0;  // of the last one
  };

  absl::Status TakePort(std::size_t store, const std::string& address);
  absl::Status ListenAt(Door& door, const std::string& address, int asked);  // asked: 0 for any
  // In a run of several nodes, also while a round has one.
  bool EachNodeServes() const;
  absl::Status ServeStore(const Start& start, std::size_t store);
  absl::Status ServeTcpStore(const Start& start, std::size_t store);

  const NodeConfig& config_;
  NodeSession& session_;
  const std::function<void(const std::string&)> on_notice_;
  OwnerLookups owners_;  // before the doors, which call it
  std::vector<Door> doors_;
};

}  // namespace ddprun
