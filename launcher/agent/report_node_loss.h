// SPDX-License-Identifier: Apache-2.0
// The last word of a node whose agent was killed: the service takes it out of the run at once, and
// not when its lease is over.
#pragma once

#include <optional>
#include <string>

#include "launcher/options/options.h"
#include "rendezvous/security/credentials.h"
#include "rendezvous/values/session_types.h"

namespace ddprun {

// For the warden, which has no gRPC until then, once no worker is left. Takes kLossReportTimeout at
// most. Where the other nodes could not be told, it says so on stderr; where the service ended
// with the agent, they know already.
void TellServiceOfDeath(const Options& options, const NodeId& node_id,
                        const std::optional<TlsCredentials>& credentials, const std::string& how);

}  // namespace ddprun
