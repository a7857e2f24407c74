// SPDX-License-Identifier: Apache-2.0
// Name lookup for service and agents.
#pragma once

#include <netdb.h>

#include <memory>
#include <string>

namespace ddprun {

struct FreeAddrInfo {
  void operator()(addrinfo* list) const { freeaddrinfo(list); }
};
using AddrInfoPtr = std::unique_ptr<addrinfo, FreeAddrInfo>;

// getaddrinfo() for a numeric port. "localhost" is the loopback (RFC 6761, section 6.3) even
// without /etc/hosts, as in minimal containers. Returns null on failure; `error`, if given, is then
// a code for gai_strerror(). Blocks as long as the system's name service does.
AddrInfoPtr Resolve(const std::string& host, int port, int socket_type, int flags,
                    int* error = nullptr);

}  // namespace ddprun
