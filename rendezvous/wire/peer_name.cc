// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/wire/peer_name.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"

namespace ddprun {
namespace {

// The /64 network of an IPv6 address: one host may own all of its addresses. An IPv4-mapped address
// is its own group.
std::string GroupOf(const in6_addr& address, const std::string& text) {
  if (IN6_IS_ADDR_V4MAPPED(&address)) return text;
  in6_addr network = address;
  std::fill(network.s6_addr + 8, network.s6_addr + 16, 0);
  char network_text[INET6_ADDRSTRLEN] = "";
  inet_ntop(AF_INET6, &network, network_text, sizeof network_text);
  return absl::StrCat(network_text, "/64");
}

}  // namespace

PeerName NameOf(const sockaddr_storage& from) {
  char text[INET6_ADDRSTRLEN] = "";
  if (from.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(from);
    inet_ntop(AF_INET, &v4.sin_addr, text, sizeof text);
    return {text, absl::StrCat(text, " ", ntohs(v4.sin_port))};
  }
  if (from.ss_family != AF_INET6) return {};
  const auto& v6 = reinterpret_cast<const sockaddr_in6&>(from);
  inet_ntop(AF_INET6, &v6.sin6_addr, text, sizeof text);
  const std::string address = absl::StrReplaceAll(text, {{"::ffff:", ""}});
  return {GroupOf(v6.sin6_addr, address), absl::StrCat(address, " ", ntohs(v6.sin6_port))};
}

std::string AddressOfPeer(absl::string_view peer) {
  if (!absl::ConsumePrefix(&peer, "ipv4:") && !absl::ConsumePrefix(&peer, "ipv6:")) return "";
  return absl::StrReplaceAll(peer.substr(0, peer.rfind(':')),
                             {{"%5B", ""}, {"%5D", ""}, {"[", ""}, {"]", ""}});
}

std::string NameOfGrpc(absl::string_view peer) {
  const std::string address = AddressOfPeer(peer);
  if (address.empty()) return std::string(peer);
  return absl::StrCat(address, " ", peer.substr(peer.rfind(':') + 1));
}

}  // namespace ddprun
