// SPDX-License-Identifier: Apache-2.0
// Where the nodes of a run meet: in a service inside this process, or in one that is elsewhere.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "launcher/options/options.h"
#include "rendezvous/service/server.h"

namespace ddprun {

struct RendezvousEndpoint {
  std::unique_ptr<RendezvousServer> server;  // absent: it is elsewhere
  std::string target;                        // for ServiceChannel, where it is elsewhere
  std::string name;  // for people: "10.0.0.1:29500"; empty for a run of one node
  std::string host;  // that other nodes know; empty for a run of one node
  int port = 0;
};

// One node without an endpoint meets itself inside its process. Node 0 hosts at --master-addr. An
// --rdzv-endpoint that is this machine is hosted here, unless something serves there already.
// `watcher` observes a service that is opened here. `own_run_id` names the run of nodes without a
// name. ALREADY_EXISTS, INVALID_ARGUMENT or UNAVAILABLE: one sentence.
absl::StatusOr<RendezvousEndpoint> OpenRendezvous(const Options& options, const Security& security,
                                                  const std::string& own_run_id,
                                                  RunWatcher* watcher = nullptr);

// Where the service is that this node's warden can reach when the agent is dead. Absent where the
// agent hosts it, as far as the options tell: at an endpoint on this machine another node may.
std::optional<Endpoint> ServiceWithoutAgent(const Options& options);

// A name for a run that was given none: "20260131-174500-3f9a1c", so that log folders sort by time.
std::string MakeRunId();

}  // namespace ddprun
