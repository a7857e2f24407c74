// SPDX-License-Identifier: Apache-2.0
// Which user has a TCP socket of this network namespace, as the kernel tells. A socket that its
// process has closed is listed as root's until the connection is over, so only established ones
// count.
#pragma once

#include <sys/socket.h>
#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "rendezvous/values/connection_owner.h"

namespace ddprun {

// Where the kernel is asked, in this order; tests leave some out.
struct SocketSources {
  bool sock_diag = true;  // sock_diag(7)
  std::string tcp = "/proc/net/tcp";
  std::string tcp6 = "/proc/net/tcp6";
};

struct SocketOwner {
  bool known = true;          // false: no source answers
  std::optional<uid_t> user;  // absent: no established socket has these ends
};

// The user of this process, or root.
bool IsOurs(uid_t user);

// Owner of the socket that has these two ends, its own first. Takes microseconds if there is one,
// else the milliseconds in which the kernel looks through all sockets.
SocketOwner OwnerOf(const sockaddr_storage& own, const sockaddr_storage& other,
                    const SocketSources& sources = {});

// The answer of this host, which has the addresses `own` (OwnAddresses()), to a query about a
// client that may be here. Between it and the store addresses may be translated: that of the server
// may differ; that of the client too if the service sees this node at it, and then each established
// connection of this user to that port of another host counts.
OwnerAnswer AnswerQuery(const OwnerQuery& query, const std::vector<std::string>& own,
                        const SocketSources& sources = {});

// An IPv4 address that an IPv6 socket sees, as itself.
sockaddr_storage Unmapped(const sockaddr_storage& from);

}  // namespace ddprun
