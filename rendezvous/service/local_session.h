// SPDX-License-Identifier: Apache-2.0
// The session of the agent in whose process the service is: no message is written, no connection
// made.
#pragma once

#include <memory>

#include "rendezvous/client/session_client.h"
#include "rendezvous/service/run_registry.h"

namespace ddprun {

// `registry` must outlive the session. The node is gone from its run when the session is destroyed.
// Directives reach `handler` on the thread that brings them about, which may be the caller's own.
std::unique_ptr<SessionClient> OpenLocalSession(RunRegistry& registry, const Join& join,
                                                SessionClient::Handler handler);

}  // namespace ddprun
