// SPDX-License-Identifier: Apache-2.0
// Reports that this node's agent was killed, so that the service removes the node at once and not
// when its lease is over.
#pragma once

#include <optional>
#include <string>

#include "launcher/options/options.h"
#include "rendezvous/security/credentials.h"
#include "rendezvous/values/session_types.h"

namespace ddprun {

// For the warden, which has no gRPC until then, once no worker is left. Takes kLossReportTimeout at
// most. Prints on stderr if the service could not be reached; if the service ended with the agent,
// the other nodes know already.
void TellServiceOfDeath(const Options& options, const NodeId& node_id,
                        const std::optional<TlsCredentials>& credentials, const std::string& how);

}  // namespace ddprun
