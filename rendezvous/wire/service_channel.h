// SPDX-License-Identifier: Apache-2.0
// A connection to the service, without gRPC types. Its definition is in grpc_channel.h, for this
// room only.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "rendezvous/security/credentials.h"

namespace ddprun {

// A node's one connection to the service. The session and the agent's store proxy share it.
// Threadsafe.
class ServiceChannel;

// `target`: "HOST:PORT", "HOST:PORT,HOST:PORT..." (several services, of which one leads), or
// "unix:/PATH". Absent credentials: plain text. `server_name`: the name in
// the service's certificate, if that is a user's own, and if there is one service; empty: the
// target's host. Does not connect
// yet.
std::shared_ptr<ServiceChannel> MakeServiceChannel(
    const std::string& target, std::optional<TlsCredentials> credentials = std::nullopt,
    const std::string& server_name = "");

}  // namespace ddprun
