// SPDX-License-Identifier: Apache-2.0
// Names to addresses, in one place for service and agents.
#pragma once

#include <netdb.h>

#include <memory>
#include <string>

namespace ddprun {

struct FreeAddrInfo {
  void operator()(addrinfo* list) const { freeaddrinfo(list); }
};
using AddrInfoPtr = std::unique_ptr<addrinfo, FreeAddrInfo>;

// getaddrinfo() for a port in numbers, but that "localhost" is the loopback (RFC 6761, section 6.3)
// also where no /etc/hosts says so, as in minimal containers. Null on failure; then `error`, if
// given, is what gai_strerror() explains. Blocks as long as the system's name service does.
AddrInfoPtr Resolve(const std::string& host, int port, int socket_type, int flags,
                    int* error = nullptr);

}  // namespace ddprun
