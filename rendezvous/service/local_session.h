// SPDX-License-Identifier: Apache-2.0
// The session of the agent in the service's own process: without messages and connections.
#pragma once

#include <memory>

#include "rendezvous/client/session_client.h"
#include "rendezvous/service/run_registry.h"

namespace ddprun {

// `registry` must outlive the session. The node is gone from its run when the session is destroyed.
// Directives reach `handler` on the thread that causes them, which may be the caller's.
std::unique_ptr<SessionClient> OpenLocalSession(RunRegistry& registry, const Join& join,
                                                SessionClient::Handler handler);

}  // namespace ddprun
