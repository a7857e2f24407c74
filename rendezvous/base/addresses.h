// SPDX-License-Identifier: Apache-2.0
// Addresses of this host that a server may bind. For the address that is advertised to other nodes
// see own_address.h.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "rendezvous/base/owned_fd.h"

namespace ddprun {

// True for "10.0.0.1" or "::1": no name lookup is needed.
bool IsNumericAddress(const std::string& host);

// A non-blocking listening socket, and its numeric address and port, or its path.
struct ListeningSocket {
  OwnedFd fd;
  std::string address;
  int port = 0;
};

// ALREADY_EXISTS if the port is in use, INVALID_ARGUMENT if the name cannot be resolved or is not
// an address of this host, PERMISSION_DENIED for a port that needs privileges.
absl::StatusOr<ListeningSocket> ListenOn(const std::string& host, int port);

// ALREADY_EXISTS if the path is a socket that a process serves, or not a socket; INVALID_ARGUMENT
// if it is too long or its folder is not writable.
absl::StatusOr<ListeningSocket> ListenOnPath(const std::string& path);

// A TCP port that is free at `address` now. UNAVAILABLE if there is none.
absl::StatusOr<int> FindFreePort(const std::string& address);

}  // namespace ddprun
