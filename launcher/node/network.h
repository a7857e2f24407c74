// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/socket.h>

#include <string>

namespace ddprun {

// Of two addresses with any port. Null is like nothing.
bool IsSameAddress(const sockaddr* a, const sockaddr* b);

// Whether `host` (a name or an address) means this machine.
bool IsThisMachine(const std::string& host);

// Whether something could listen at this address and port now. False also where the address is not
// this machine's.
bool IsPortFree(const std::string& host, int port);

// This machine's name, as people know it.
std::string HostName();

}  // namespace ddprun
