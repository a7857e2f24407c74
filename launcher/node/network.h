// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/socket.h>

#include <optional>
#include <string>

namespace ddprun {

// Of two addresses with any port. Null is like nothing.
bool IsSameAddress(const sockaddr* a, const sockaddr* b);

struct Interface {
  std::string name;                   // as ip(8) shows it
  bool ipv6 = false;                  // the address that was looked for
  bool is_loopback = false;           // the interface
  bool has_loopback_address = false;  // the address that was looked for
};

// The interface of this machine that has the address `host`, or one that this name resolves to.
std::optional<Interface> InterfaceWith(const std::string& host);

// Whether `host` (a name or an address) means this machine.
bool IsThisMachine(const std::string& host);

// Whether something could listen at this address and port now. False also where the address is not
// this machine's.
bool IsPortFree(const std::string& host, int port);

// This machine's name, as people know it.
std::string HostName();

}  // namespace ddprun
