// SPDX-License-Identifier: Apache-2.0
// The rendezvous service of a run: inside this process, or elsewhere.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "launcher/options/options.h"
#include "rendezvous/election/service_replica.h"
#include "rendezvous/service/server.h"

namespace ddprun {

struct RendezvousEndpoint {
  std::unique_ptr<RendezvousServer> server;  // absent: it is elsewhere
  std::unique_ptr<ServiceReplica> replica;   // one of several, of which any may lead; or absent
  std::string target;                        // for ServiceChannel, where it is elsewhere
  std::string name;  // for users: "10.0.0.1:29500"; empty for a run of one node
  std::string host;  // as known to other nodes; empty for a run of one node
  int port = 0;
};

// Each machine that --rdzv-endpoint names has one of the run's services.
bool HostsReplica(const Options& options);

// A run of one node without an endpoint has a service without network. Node 0 hosts the service at
// --master-addr. An --rdzv-endpoint that is this machine is hosted here, unless a service listens
// there already.
// `on_note`: called on any thread with a sentence about that service. `watcher` observes a service
// that is opened here. `own_run_id` names the run of nodes without a name. ALREADY_EXISTS,
// INVALID_ARGUMENT or UNAVAILABLE: one sentence.
absl::StatusOr<RendezvousEndpoint> OpenRendezvous(
    const Options& options, const Security& security, const std::string& own_run_id,
    RunWatcher* watcher = nullptr,
    std::function<void(const std::string&)> on_note = [](const std::string&) {});

// The service that this node's warden can reach after the agent's death. Absent if the options
// imply that the agent hosts it; at an endpoint on this machine another node may host it.
std::optional<Endpoint> ServiceWithoutAgent(const Options& options);

// A name for a run without --rdzv-id: "20260131-174500-3f9a1c", so that log folders sort by time.
std::string MakeRunId();

}  // namespace ddprun
