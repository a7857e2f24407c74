// SPDX-License-Identifier: Apache-2.0
// Who is at the other end of a TCP connection.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

namespace ddprun {

struct TcpPeer {
  std::string address;        // numeric; of IPv4 always in its own form
  bool on_this_host = false;  // in this network namespace
  // Of a peer on this host: the user whose process has the other end. Absent: none has it any more.
  std::optional<uid_t> user;
};

// Of a connected socket; no address if it is not connected.
TcpPeer PeerOf(int fd);

}  // namespace ddprun
