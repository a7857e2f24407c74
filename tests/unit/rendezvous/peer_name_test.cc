// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/wire/peer_name.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>

namespace ddprun {
namespace {

PeerName V6(const char* text) {
  sockaddr_storage storage{};
  auto& address = reinterpret_cast<sockaddr_in6&>(storage);
  address.sin6_family = AF_INET6;
  address.sin6_port = htons(5000);
  inet_pton(AF_INET6, text, &address.sin6_addr);
  return NameOf(storage);
}

TEST(PeerNameTest, AnAddressOfIpv4IsItsOwnGroup) {
  sockaddr_storage storage{};
  auto& address = reinterpret_cast<sockaddr_in&>(storage);
  address.sin_family = AF_INET;
  address.sin_port = htons(5000);
  inet_pton(AF_INET, "10.1.2.3", &address.sin_addr);
  EXPECT_EQ(NameOf(storage).group, "10.1.2.3");
  EXPECT_EQ(NameOf(storage).peer, NameOfGrpc("ipv4:10.1.2.3:5000"));
  EXPECT_EQ(V6("::ffff:10.1.2.3").group, "10.1.2.3");
  EXPECT_EQ(V6("::ffff:10.1.2.3").peer, NameOf(storage).peer);
}

TEST(PeerNameTest, AddressesOfOneIpv6NetworkAreOneGroup) {
  EXPECT_EQ(V6("2001:db8:1:2::1").group, "2001:db8:1:2::/64");
  EXPECT_EQ(V6("2001:db8:1:2:ffff:ffff:ffff:ffff").group, V6("2001:db8:1:2::1").group);
  EXPECT_NE(V6("2001:db8:1:3::1").group, V6("2001:db8:1:2::1").group);
  EXPECT_EQ(V6("2001:db8:1:2::1").peer, NameOfGrpc("ipv6:%5B2001:db8:1:2::1%5D:5000"));
}

TEST(PeerNameTest, AUnixSocketHasNone) {
  const sockaddr_storage storage{.ss_family = AF_UNIX};
  EXPECT_EQ(NameOf(storage).peer, "");
  EXPECT_EQ(NameOf(storage).group, "");
}

}  // namespace
}  // namespace ddprun
