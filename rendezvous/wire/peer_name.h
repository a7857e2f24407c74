// SPDX-License-Identifier: Apache-2.0
// The name of a connection's peer, and the group with which the peer shares connection slots.
#pragma once

#include <sys/socket.h>

#include <string>

#include "absl/strings/string_view.h"

namespace ddprun {

struct PeerName {
  std::string group;  // its address; of IPv6 its network
  std::string peer;   // "ADDRESS PORT"; empty for a unix socket
};

PeerName NameOf(const sockaddr_storage& from);

// "127.0.0.1" of "ipv4:127.0.0.1:5000", "::1" of "ipv6:%5B::1%5D:5000", as gRPC writes them; empty
// for a unix socket.
std::string AddressOfPeer(absl::string_view peer);

// The same in the form of PeerName::peer; text that is not an address is returned unchanged.
std::string NameOfGrpc(absl::string_view peer);

}  // namespace ddprun
