// SPDX-License-Identifier: Apache-2.0
// Whose a TCP socket is, from each source that the kernel has, and what a node answers about it.
#include "rendezvous/proxy/socket_owner.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/wait.h>
#include <unistd.h>

#include "absl/strings/match.h"
#include "rendezvous/base/addresses.h"
#include "rendezvous/proxy/tcp_peer.h"

namespace ddprun {
namespace {

constexpr uid_t kNobody = 65'534;

const SocketSources kDiag{.tcp = "/none", .tcp6 = "/none"};
const SocketSources kTables{.sock_diag = false};
const SocketSources kNothing{.sock_diag = false, .tcp = "/none", .tcp6 = "/none"};

// A connection over loopback.
struct Pair {
  OwnedFd client;
  OwnedFd accepted;
  TcpConnection connection;  // as the server has it
};

Pair Connect(const std::string& address, bool mapped = false) {
  absl::StatusOr<ListeningSocket> listener = ListenOn(address, 0);
  if (!listener.ok()) return {};
  const bool v6 = mapped || address == "::1";
  Pair pair;
  pair.client = OwnedFd(socket(v6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const auto port = htons(static_cast<in_port_t>(listener->port));
  if (v6) {
    sockaddr_in6 to{.sin6_family = AF_INET6, .sin6_port = port, .sin6_addr = in6addr_loopback};
    if (mapped) {
      to.sin6_addr = {};
      to.sin6_addr.s6_addr[10] = to.sin6_addr.s6_addr[11] = 0xff;
      to.sin6_addr.s6_addr[12] = 127;
      to.sin6_addr.s6_addr[15] = 1;
    }
    EXPECT_EQ(connect(pair.client.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to), 0);
  } else {
    sockaddr_in to{.sin_family = AF_INET, .sin_port = port};
    EXPECT_EQ(inet_pton(AF_INET, address.c_str(), &to.sin_addr), 1);
    EXPECT_EQ(connect(pair.client.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to), 0);
  }
  pair.accepted = OwnedFd(accept4(listener->fd.get(), nullptr, nullptr, SOCK_CLOEXEC));
  pair.connection = PeerOf(pair.accepted.get()).connection;
  return pair;
}

OwnerQuery Query(const TcpConnection& connection, bool from_seen_address = false) {
  return {.id = 7, .connection = connection, .from_seen_address = from_seen_address};
}

// The answer about a connection that a process of another user has.
OwnerAnswer AnswerAboutNobody(const SocketSources& sources) {
  absl::StatusOr<ListeningSocket> listener = ListenOn("127.0.0.1", 0);
  EXPECT_TRUE(listener.ok());
  const pid_t child = fork();
  if (child == 0) {
    if (setuid(kNobody) != 0) _exit(99);
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in to{.sin_family = AF_INET,
                   .sin_port = htons(static_cast<in_port_t>(listener->port))};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    char byte = 0;
    _exit(connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0 &&
                  recv(fd, &byte, 1, 0) == 0
              ? 0
              : 1);
  }
  // The listener does not block, and the child needs a moment.
  OwnedFd accepted;
  while (!accepted.valid())
    accepted = OwnedFd(accept4(listener->fd.get(), nullptr, nullptr, SOCK_CLOEXEC));
  const OwnerAnswer answer =
      AnswerQuery(Query(PeerOf(accepted.get()).connection), {"127.0.0.1"}, sources);
  accepted.Reset();
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  return answer;
}

class SocketOwnerTest : public ::testing::TestWithParam<SocketSources> {};

TEST_P(SocketOwnerTest, ItsOwnConnectionIsFoundUntilItIsClosed) {
  for (const char* address : {"127.0.0.1", "::1"}) {
    Pair pair = Connect(address);
    if (!pair.client.valid()) continue;  // a host without IPv6
    EXPECT_EQ(AnswerQuery(Query(pair.connection), {}, GetParam()),
              (OwnerAnswer{7, Ownership::kOwn, std::nullopt, ""}))
        << address;
    TcpPeer peer = PeerOf(pair.accepted.get(), GetParam());
    EXPECT_TRUE(peer.owner.known);
    EXPECT_EQ(peer.owner.user, geteuid());
    pair.client.Reset();
    EXPECT_EQ(AnswerQuery(Query(pair.connection), {}, GetParam()).ownership, Ownership::kNone);
    peer = PeerOf(pair.accepted.get(), GetParam());
    EXPECT_TRUE(peer.owner.known);
    EXPECT_FALSE(peer.owner.user.has_value());
  }
}

TEST_P(SocketOwnerTest, AnIpv4ConnectionOfAnIpv6SocketIsFound) {
  const Pair pair = Connect("127.0.0.1", /*mapped=*/true);
  EXPECT_EQ(pair.connection.client_address, "127.0.0.1");
  EXPECT_EQ(AnswerQuery(Query(pair.connection), {}, GetParam()).ownership, Ownership::kOwn);
}

TEST_P(SocketOwnerTest, AnotherUserIsNamed) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root";
  EXPECT_EQ(AnswerAboutNobody(GetParam()), (OwnerAnswer{7, Ownership::kOtherUser, kNobody, ""}));
}

TEST_P(SocketOwnerTest, TheServersAddressMayBeTranslated) {
  const Pair pair = Connect("127.0.0.1");
  TcpConnection seen = pair.connection;
  seen.server_address = "192.0.2.1";
  EXPECT_EQ(AnswerQuery(Query(seen), {}, GetParam()).ownership, Ownership::kOwn);
  seen.client_port = seen.client_port == 1 ? 2 : seen.client_port - 1;
  EXPECT_EQ(AnswerQuery(Query(seen), {}, GetParam()).ownership, Ownership::kNone);
}

// What leaves through a translation, whose port differs too, is known by the store's port alone.
TEST_P(SocketOwnerTest, TheClientsAddressMayBeTranslatedWhereTheServiceSeesTheNodeAtIt) {
  const Pair pair = Connect("127.0.0.1");
  TcpConnection seen = pair.connection;
  seen.client_address = "192.0.2.7";
  EXPECT_EQ(AnswerQuery(Query(seen, true), {"10.0.0.2"}, GetParam()).ownership, Ownership::kNone)
      << "a connection within the host is no other host's";
  const std::vector<std::string> own = OwnAddresses();
  if (own.empty() || !absl::StrContains(own.front(), '.')) return;  // only loopback
  const Pair outward = Connect(own.front());
  seen = outward.connection;
  seen.client_address = "192.0.2.7";
  seen.client_port = 1;
  EXPECT_EQ(AnswerQuery(Query(seen, true), own, GetParam()).ownership, Ownership::kOwn);
  EXPECT_EQ(AnswerQuery(Query(seen, false), own, GetParam()).ownership, Ownership::kNone);
  EXPECT_EQ(AnswerQuery(Query(seen, true), {"192.0.2.7"}, GetParam()).ownership, Ownership::kNone)
      << "nothing is translated";
}

TEST_P(SocketOwnerTest, NonsenseIsNobodys) {
  for (const TcpConnection& wrong :
       {TcpConnection{"", 1, "10.0.0.1", 2}, TcpConnection{"10.0.0.2", 0, "10.0.0.1", 2},
        TcpConnection{"10.0.0.2", 70'000, "10.0.0.1", 2}, TcpConnection{"a", 1, "b", 2}}) {
    EXPECT_EQ(AnswerQuery(Query(wrong, true), {}, GetParam()).ownership, Ownership::kNone);
  }
}

INSTANTIATE_TEST_SUITE_P(Sources, SocketOwnerTest, ::testing::Values(kDiag, kTables),
                         [](const auto& sources) {
                           return sources.param.sock_diag ? "SockDiag" : "Tables";
                         });

TEST(SocketOwnerTest, WithoutAnySourceNothingIsKnown) {
  const Pair pair = Connect("127.0.0.1");
  EXPECT_EQ(AnswerQuery(Query(pair.connection), {}, kNothing).ownership, Ownership::kUnknown);
  const TcpPeer peer = PeerOf(pair.accepted.get(), kNothing);
  EXPECT_TRUE(peer.on_this_host);
  EXPECT_FALSE(peer.owner.known);
}

TEST(PlainAddressTest, HasNeitherScopeNorMapping) {
  EXPECT_EQ(PlainAddress("fe80::1%eth0"), "fe80::1");
  EXPECT_EQ(PlainAddress("fe80::1%25eth0"), "fe80::1");
  EXPECT_EQ(PlainAddress("::ffff:10.0.0.1"), "10.0.0.1");
  EXPECT_EQ(PlainAddress("::ffff:0:1"), "::ffff:0:1");
  EXPECT_EQ(PlainAddress("10.0.0.1"), "10.0.0.1");
  EXPECT_EQ(PlainAddress(""), "");
}

}  // namespace
}  // namespace ddprun
