// SPDX-License-Identifier: Apache-2.0
// Who is at the other end of a TCP connection.
#pragma once

#include "rendezvous/proxy/socket_owner.h"
#include "rendezvous/values/connection_owner.h"

namespace ddprun {

struct TcpPeer {
  TcpConnection connection;   // of which the peer is the client
  bool on_this_host = false;  // in this network namespace
  SocketOwner owner;          // of a peer on this host: of its end
};

// Peer of a connected socket; no address if it is not connected.
TcpPeer PeerOf(int fd, const SocketSources& sources = {});

}  // namespace ddprun
