// SPDX-License-Identifier: Apache-2.0
// The rendezvous service for a run of one node, in its agent's process: nobody else can reach it,
// so it needs no port, no gRPC and no thread but a timer's.
#pragma once

#include <memory>
#include <string>

#include "rendezvous/service/server.h"

namespace ddprun {

// `run_id` names the run of a node that brings no name.
std::unique_ptr<RendezvousServer> MakeLocalServer(const std::string& run_id,
                                                  RunWatcher* watcher = nullptr);

}  // namespace ddprun
