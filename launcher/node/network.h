// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/socket.h>

#include <optional>
#include <string>

namespace ddprun {

// Compares two addresses without their ports. False if either is null.
bool IsSameAddress(const sockaddr* a, const sockaddr* b);

struct Interface {
  std::string name;                   // as ip(8) shows it
  bool ipv6 = false;                  // the given address
  bool is_loopback = false;           // the interface
  bool has_loopback_address = false;  // the given address
};

// The interface of this machine that has the address `host`, or one that this name resolves to.
std::optional<Interface> InterfaceWith(const std::string& host);

// True if `host` (a name or an address) is this machine.
bool IsThisMachine(const std::string& host);

// True if the port can be bound at this address now. False also if the address is not this
// machine's.
bool IsPortFree(const std::string& host, int port);

// This machine's host name.
std::string HostName();

}  // namespace ddprun
