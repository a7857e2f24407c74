// SPDX-License-Identifier: Apache-2.0
// Unix datagram sockets between processes of one user: an agent and its workers.
#pragma once

#include <sys/socket.h>
#include <sys/un.h>

#include <cstddef>
#include <optional>
#include <string_view>

#include "rendezvous/base/owned_fd.h"

namespace ddprun {

inline const sockaddr* AsSockaddr(const sockaddr_un& address) {
  return reinterpret_cast<const sockaddr*>(&address);
}

// A socket at that address (0600) that never blocks, in place of what is there. Not valid: errno
// has the reason.
OwnedFd BindDatagramSocket(const sockaddr_un& address);

// One datagram into `buffer`; what does not fit is cut off. `text` is absent if another user has
// sent it: the folder of the socket belongs to this user alone, and this is checked all the same.
// False: there is none.
bool ReceiveDatagram(int fd, char* buffer, std::size_t size, std::optional<std::string_view>& text);

}  // namespace ddprun
