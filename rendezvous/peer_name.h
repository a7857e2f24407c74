// SPDX-License-Identifier: Apache-2.0
// What a connection's other end is called, and with whom it shares its slots.
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

// "ipv4:127.0.0.1:5000" or "ipv6:%5B::1%5D:5000", as gRPC writes it, to PeerName::peer's form.
std::string NameOfGrpc(absl::string_view peer);

}  // namespace ddprun
