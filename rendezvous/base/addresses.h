// SPDX-License-Identifier: Apache-2.0
// Addresses of this host: what a server may bind. By which of them others know it: own_address.h.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "rendezvous/base/owned_fd.h"

namespace ddprun {

// "10.0.0.1" or "::1": no name to be looked up.
bool IsNumericAddress(const std::string& host);

// A socket that listens and does not block, and where: the numeric address and the port, or the
// path.
struct ListeningSocket {
  OwnedFd fd;
  std::string address;
  int port = 0;
};

// ALREADY_EXISTS if the port is in use, INVALID_ARGUMENT if the name cannot be resolved or is not
// an address of this host, PERMISSION_DENIED for a port that needs privileges.
absl::StatusOr<ListeningSocket> ListenOn(const std::string& host, int port);

// ALREADY_EXISTS if something is there that answers or is no socket, INVALID_ARGUMENT if the path
// is too long or its folder cannot be written.
absl::StatusOr<ListeningSocket> ListenOnPath(const std::string& path);

// A TCP port that is free at `address` now. UNAVAILABLE if there is none.
absl::StatusOr<int> FindFreePort(const std::string& address);

}  // namespace ddprun
