// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/proxy/tcp_peer.h"

#include <netinet/in.h>

#include <algorithm>
#include <string>
#include <vector>

#include "rendezvous/base/addresses.h"

namespace ddprun {
namespace {

void Describe(const sockaddr_storage& from, std::string& address, int& port) {
  const bool v4 = from.ss_family == AF_INET;
  address = PlainAddress(NumericAddress(reinterpret_cast<const sockaddr*>(&from),
                                        v4 ? sizeof(sockaddr_in) : sizeof(sockaddr_in6)));
  port = ntohs(v4 ? reinterpret_cast<const sockaddr_in&>(from).sin_port
                  : reinterpret_cast<const sockaddr_in6&>(from).sin6_port);
}

}  // namespace

TcpPeer PeerOf(int fd, const SocketSources& sources) {
  sockaddr_storage own{};
  sockaddr_storage peer{};
  socklen_t own_size = sizeof own;
  socklen_t peer_size = sizeof peer;
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&own), &own_size) != 0 ||
      getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &peer_size) != 0) {
    return {};
  }
  own = Unmapped(own);
  peer = Unmapped(peer);
  TcpPeer found;
  TcpConnection& connection = found.connection;
  Describe(peer, connection.client_address, connection.client_port);
  Describe(own, connection.server_address, connection.server_port);
  found.on_this_host = IsLoopback(reinterpret_cast<const sockaddr*>(&peer)) ||
                       connection.client_address == connection.server_address;
  if (!found.on_this_host) {
    const std::vector<std::string> here = OwnAddresses();
    found.on_this_host =
        std::find(here.begin(), here.end(), connection.client_address) != here.end();
  }
  if (found.on_this_host) found.owner = OwnerOf(peer, own, sources);
  return found;
}

}  // namespace ddprun
