// SPDX-License-Identifier: Apache-2.0
// Addresses of this host: those that a server may bind, and the one that other nodes use.
#pragma once

#include <sys/socket.h>
#include <sys/un.h>

#include <string>
#include <vector>

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

// The address of a unix socket. INVALID_ARGUMENT if the path is empty or too long.
absl::StatusOr<sockaddr_un> UnixAddress(const std::string& path);

// ALREADY_EXISTS if the path is a socket that a process serves, or not a socket; INVALID_ARGUMENT
// if it is too long or its folder is not writable.
absl::StatusOr<ListeningSocket> ListenOnPath(const std::string& path);

// The peer of this unix socket is a process of the same user, or of root.
bool IsOwnUser(int fd);

// A TCP port that is free at `address` now. UNAVAILABLE if there is none.
absl::StatusOr<int> FindFreePort(const std::string& address);

// Whether `host` is a name, other than localhost, that this machine resolves to loopback addresses
// alone: Debian's "127.0.1.1 node0" in node 0's own /etc/hosts. The other nodes resolve it to
// another address.
bool IsOwnNameOnLoopback(const std::string& host);

bool IsLoopback(const sockaddr* address);

// "10.0.0.1" or "fd00::1"; empty if it is of neither kind.
std::string NumericAddress(const sockaddr* address, socklen_t length);

// "fd00::1" of "fd00::1%eth0" or "fd00::1%25eth0", "10.0.0.1" of "::ffff:10.0.0.1": the same on
// each host that writes it.
std::string PlainAddress(std::string address);

// The numeric addresses of this host's interfaces that are up, without those of loopback, in the
// form of PlainAddress(); those of links last. Empty if they cannot be read.
std::vector<std::string> OwnAddresses();

// The address of the default route, or of the first interface that is up. UNAVAILABLE if there is
// only loopback.
absl::StatusOr<std::string> OutwardAddress();

// The address of this host from which `host` is reached ("10.0.0.2"), as the kernel routes it.
// UNAVAILABLE if the name cannot be resolved or there is no route.
absl::StatusOr<std::string> LocalAddressTowards(const std::string& host, int port);

// The address that is advertised to other nodes: LocalAddressTowards(), or OutwardAddress() if
// IsOwnNameOnLoopback().
absl::StatusOr<std::string> AdvertisedAddress(const std::string& host, int port);

}  // namespace ddprun
