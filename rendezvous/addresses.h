// SPDX-License-Identifier: Apache-2.0
// Addresses of this host: what a server may bind, for the room's own files. What agents need is in
// session_client.h.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace ddprun {

// "10.0.0.1" or "::1": no name to be looked up.
bool IsNumericAddress(const std::string& host);

// "10.0.0.1:29500" or "[::1]:29500".
std::string HostPort(const std::string& host, int port);

// The numeric address to bind for `host`, after trying it: ALREADY_EXISTS if the port is in use,
// INVALID_ARGUMENT if the name cannot be resolved or is not an address of this host,
// PERMISSION_DENIED for a port that needs privileges. gRPC says of all these only that it failed.
absl::StatusOr<std::string> CheckBindable(const std::string& host, int port);

// OK if a unix socket can be made at the path: ALREADY_EXISTS if something is there that answers or
// is no socket, INVALID_ARGUMENT if the path is too long.
absl::Status CheckSocketPath(const std::string& path);

}  // namespace ddprun
