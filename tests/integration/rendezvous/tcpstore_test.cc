// SPDX-License-Identifier: Apache-2.0
// Clients of torch's TCPStore at an agent's port: who may connect, and the store behind it. The
// protocol itself is tested in tcpstore_session_test.cc.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <mutex>

#include "rendezvous/base/limits.h"
#include "rendezvous/proxy/store_proxy.h"
#include "rendezvous/proxy/tcp_peer.h"
#include "rendezvous/tcpstore/store_client.h"
#include "tests/integration/rendezvous/test_node.h"
#include "tests/testing/tcpstore_requests.h"

namespace ddprun {
namespace {

using std::string_literals::operator""s;
using tcpstore::kHello;
using tcpstore::Request;
using tcpstore::Text;
using tcpstore::U64;
using ::testing::HasSubstr;

std::string Set(const std::string& key, const std::string& value) {
  return Request(1, Text(key), Text(value));
}
std::string Get(const std::string& key) { return Request(3, Text(key)); }
std::string Wait(const std::string& key) { return Request(6, U64(1), Text(key)); }

OwnedFd ConnectTo(int port) {
  OwnedFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<in_port_t>(port));
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(connect(fd.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to), 0);
  return fd;
}

class TcpClient {
 public:
  explicit TcpClient(int port) : fd_(ConnectTo(port)) { Write(kHello); }

  void Write(const std::string& bytes) {
    ASSERT_EQ(send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }
  // That many bytes; fewer if the connection ended.
  std::string Read(std::size_t count) {
    std::string bytes(count, '\0');
    std::size_t got = 0;
    while (got < count) {
      pollfd ready{fd_.get(), POLLIN, 0};
      if (poll(&ready, 1, 20'000) != 1) break;
      const ssize_t more = recv(fd_.get(), bytes.data() + got, count - got, 0);
      if (more <= 0) break;
      got += static_cast<std::size_t>(more);
    }
    bytes.resize(got);
    return bytes;
  }
  bool Ended() { return Read(1).empty(); }

 private:
  OwnedFd fd_;
};

// An agent that reaches the service over its connection, and one whose process the service is in.
class TcpStoreTest : public ::testing::TestWithParam<bool> {
 protected:
  TcpStoreTest() : server_(StartServer()), node_(server_->target(), JoinWithRestarts()) {
    EXPECT_TRUE(node_.Next<Start>());
    auto proxy = StoreProxy::Start({.socket_path = dir_ / "s",
                                    .channel = node_.channel(),
                                    .connector = GetParam() ? server_->store_connector() : nullptr,
                                    .run_id = "run",
                                    .node_id = NodeId{"id-a"},
                                    .on_notice = [this](const std::string& notice) {
                                      const std::lock_guard<std::mutex> lock(mutex_);
                                      notices_.push_back(notice);
                                    }});
    EXPECT_TRUE(proxy.ok()) << proxy.status();
    proxy_ = *std::move(proxy);
    proxy_->SetRound(RoundId{1});
    Serve();
  }

  static Join JoinWithRestarts() {
    Join join = MakeJoin("a", 1);
    join.restarts_max = 3;
    return join;
  }

  void Serve() {
    absl::StatusOr<ListeningSocket> listener = ListenOn("127.0.0.1", 0);
    ASSERT_TRUE(listener.ok());
    port_ = listener->port;
    ASSERT_TRUE(proxy_->ServeTcpStore(*std::move(listener)).ok());
  }

  std::vector<std::string> Notices() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return notices_;
  }

  // What a process of `user` reads after its greeting, as its exit status: 0 for nothing at all.
  int BytesForUser(uid_t user, bool hangs_up) {
    const pid_t child = fork();
    if (child == 0) {
      if (setuid(user) != 0) _exit(99);
      OwnedFd fd = ConnectTo(port_);
      const std::string bytes = kHello + Set("stolen", "1") + Get("stolen");
      (void)!send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (hangs_up) _exit(0);
      char byte = 0;
      _exit(recv(fd.get(), &byte, 1, 0) > 0 ? 1 : 0);
    }
    int status = 0;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    return WEXITSTATUS(status);
  }

  TempDir dir_;
  std::mutex mutex_;
  std::vector<std::string> notices_;
  std::unique_ptr<RendezvousServer> server_;
  TestNode node_;
  std::unique_ptr<StoreProxy> proxy_;
  int port_ = 0;
};

TEST_P(TcpStoreTest, ClientsShareTheStoreOfTheRun) {
  TcpClient a(port_);
  TcpClient b(port_);
  a.Write(Wait("k") + Get("k"));
  b.Write(Set("k", "value") + "\x0dping");
  EXPECT_EQ(b.Read(4), "ping");
  EXPECT_EQ(a.Read(1 + 8 + 5), "\0"s + Text("value"));
}

TEST_P(TcpStoreTest, AMillionBytesAndAThousandRequestsInOneGo) {
  TcpClient client(port_);
  const std::string large(4u << 20, 'x');
  client.Write(Set("large", large) + Get("large"));
  EXPECT_EQ(client.Read(8 + large.size()), Text(large));
  std::string sets;
  for (int i = 0; i < 5000; ++i) sets += Set("k", std::to_string(i));
  client.Write(sets + Get("k"));
  EXPECT_EQ(client.Read(8 + 4), Text("4999"));
}

TEST_P(TcpStoreTest, ARoundsClientsEndWithItAndAreNotInTheNext) {
  TcpClient waiting(port_);
  TcpClient setter(port_);
  waiting.Write(Wait("never"));
  setter.Write(Set("k", "old") + Get("k"));
  EXPECT_EQ(setter.Read(8 + 3), Text("old"));
  node_.Send(WorkerFailed{RoundId{1}, Failure{}});
  ASSERT_TRUE(node_.Next<Stop>());
  node_.Send(NodeStopped{RoundId{1}, 4000});
  ASSERT_TRUE(node_.Next<Start>());
  proxy_->SetRound(RoundId{2});
  EXPECT_TRUE(waiting.Ended() && setter.Ended());
  const int first_port = port_;
  Serve();
  EXPECT_NE(port_, first_port);
  TcpClient next(port_);
  next.Write(Get("k") + Set("k", "new") + Get("k"));
  EXPECT_EQ(next.Read(8 + 8 + 3), Text("") + Text("new"));
}

TEST_P(TcpStoreTest, WhatIsNoRequestEndsItsConnectionAndIsTold) {
  TcpClient good(port_);
  TcpClient bad(port_);
  bad.Write("\xff");
  EXPECT_TRUE(bad.Ended());
  good.Write("\x0dping");
  EXPECT_EQ(good.Read(4), "ping");
  EXPECT_THAT(Notices().at(0), HasSubstr("closed a worker's connection to the store: a request of "
                                         "its TCPStore has the unknown opcode 255"));
}

// Connections that say nothing take no place from the node's own workers, and give their own up.
TEST_P(TcpStoreTest, SilentConnectionsKeepNobodyOut) {
  if (GetParam()) return;  // the service plays no part
  constexpr rlim_t kFiles = 300;
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit few = before;
  few.rlim_cur = kFiles;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  Serve();  // which looks at the limit
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  TcpClient early(port_);
  early.Write("\x0dping");
  EXPECT_EQ(early.Read(4), "ping");
  std::vector<OwnedFd> silent;
  const auto begun = std::chrono::steady_clock::now();
  for (rlim_t i = 0; i < kFiles / 2; ++i) silent.push_back(ConnectTo(port_));
  TcpClient late(port_);
  EXPECT_TRUE(late.Ended()) << "there is no place left";
  const auto own = StoreClient::Connect({.target = "unix:" + (dir_ / "s"), .round = RoundId{1}});
  ASSERT_TRUE(own.ok()) << own.status();
  EXPECT_TRUE((*own)->Call({.verb = StoreVerb::kNumKeys}).status.ok());
  char byte = 0;
  EXPECT_EQ(recv(silent.front().get(), &byte, 1, 0), 0);
  EXPECT_GE(std::chrono::steady_clock::now() - begun, kFirstMessageTimeout);
  TcpClient next(port_);
  next.Write("\x0dping");
  EXPECT_EQ(next.Read(4), "ping");
  early.Write("\x0dpong");
  EXPECT_EQ(early.Read(4), "pong") << "one that has greeted may be silent";
}

TEST_P(TcpStoreTest, AnotherUserIsRejected) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root";
  EXPECT_EQ(BytesForUser(65'534, /*hangs_up=*/false), 0);
  EXPECT_THAT(Notices().at(0), HasSubstr("refused a connection from 127.0.0.1 to the workers' "
                                         "store: it is of user 65534"));
  TcpClient own(port_);
  own.Write(Get("stolen"));
  EXPECT_EQ(own.Read(8), Text(""));
}

// The kernel lists the socket of a process that is gone as root's.
TEST_P(TcpStoreTest, AnotherUserThatHasHungUpIsRejectedToo) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root";
  for (int i = 0; i < 50; ++i) EXPECT_EQ(BytesForUser(65'534, /*hangs_up=*/true), 0);
  TcpClient own(port_);
  own.Write(Get("stolen"));
  EXPECT_EQ(own.Read(8), Text(""));
}

INSTANTIATE_TEST_SUITE_P(Links, TcpStoreTest, ::testing::Bool(), [](const auto& link) {
  return link.param ? "WithinTheProcess" : "OverTheNetwork";
});

TEST(TcpPeerTest, KnowsTheUserOfTheOtherEndOfAConnectionOnThisHost) {
  for (const char* address : {"127.0.0.1", "::1", "::"}) {
    absl::StatusOr<ListeningSocket> listener = ListenOn(address, 0);
    if (!listener.ok()) continue;  // a host without IPv6
    const bool v6 = address == std::string("::1");
    OwnedFd client;
    if (v6) {
      client = OwnedFd(socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
      sockaddr_in6 to{};
      to.sin6_family = AF_INET6;
      to.sin6_port = htons(static_cast<in_port_t>(listener->port));
      to.sin6_addr = in6addr_loopback;
      ASSERT_EQ(connect(client.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to), 0);
    } else {
      client = ConnectTo(listener->port);
    }
    const OwnedFd accepted(accept4(listener->fd.get(), nullptr, nullptr, SOCK_CLOEXEC));
    ASSERT_TRUE(accepted.valid());
    const TcpPeer peer = PeerOf(accepted.get());
    EXPECT_EQ(peer.connection.client_address, v6 ? "::1" : "127.0.0.1");
    EXPECT_EQ(peer.connection.server_port, listener->port);
    EXPECT_TRUE(peer.on_this_host);
    ASSERT_TRUE(peer.owner.user.has_value()) << address;
    EXPECT_EQ(*peer.owner.user, geteuid());
    client.Reset();
    EXPECT_FALSE(PeerOf(accepted.get()).owner.user.has_value()) << address;
  }
}

}  // namespace
}  // namespace ddprun
