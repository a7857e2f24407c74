// SPDX-License-Identifier: Apache-2.0
// Why a call or a stream did not reach the service. For this room only.
#pragma once

#include <grpcpp/support/status.h>

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "rendezvous/security/credentials.h"
#include "rendezvous/wire/channel_cause.h"

namespace ddprun {

ChannelCause CauseOf(const grpc::Status& status);

// "connection refused" from "failed to connect to all addresses; last error: UNKNOWN:
// ipv4:127.0.0.1:1: Failed to connect to remote host: Connection refused".
std::string ReasonText(const grpc::Status& status, const std::string& target);

// A sentence if retrying cannot help until a user changes something: another token, plain text on
// one side, or a server that is not ddprun.
std::optional<absl::Status> FinalReason(const grpc::Status& status, const std::string& target,
                                        const std::optional<TlsCredentials>& credentials);

}  // namespace ddprun
