// SPDX-License-Identifier: Apache-2.0
// What a server may listen on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "rendezvous/base/addresses.h"
#include "tests/integration/rendezvous/test_node.h"

namespace ddprun {
namespace {

using ::testing::HasSubstr;

TEST(ServerTest, APortInUseIsAnError) {
  auto first = StartServer();
  const auto second = RendezvousServer::Start(
      {.address = "127.0.0.1", .port = first->port(), .default_run_id = "run"});
  EXPECT_EQ(second.status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(std::string(second.status().message()),
              HasSubstr("127.0.0.1:" + std::to_string(first->port()) + ": the port is in use"));
}

TEST(ServerTest, APortIsFreeAgainAtOnce) {
  auto first = StartServer();
  const int port = first->port();
  {
    TestNode a(first->target(), MakeJoin("a", 1));
    ASSERT_TRUE(a.Next<Start>());
    first.reset();
  }
  const auto second =
      RendezvousServer::Start({.address = "127.0.0.1", .port = port, .default_run_id = "run"});
  EXPECT_TRUE(second.ok()) << second.status();
}

TEST(ServerTest, ForeignAndUnknownAddressesAreNamed) {
  const auto foreign =
      RendezvousServer::Start({.address = "192.0.2.1", .port = 0, .default_run_id = "run"});
  EXPECT_EQ(foreign.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(foreign.status().message()),
              HasSubstr("192.0.2.1:0: that is not an address of this host"));
  const auto unknown = RendezvousServer::Start(
      {.address = "no-such-host.invalid", .port = 1, .default_run_id = "run"});
  EXPECT_EQ(unknown.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(unknown.status().message()), HasSubstr("no-such-host.invalid"));
}

TEST(ServerTest, AUnixSocket) {
  TempDir dir;
  const std::string address = "unix:" + (dir / "service");
  auto server = RendezvousServer::Start({.address = address, .default_run_id = "run"});
  ASSERT_TRUE(server.ok()) << server.status();
  EXPECT_EQ((*server)->target(), address);
  TestNode a((*server)->target(), MakeJoin("a", 1));
  EXPECT_TRUE(a.Next<Start>());
  const auto second = RendezvousServer::Start({.address = address, .default_run_id = "run"});
  EXPECT_EQ(second.status().code(), absl::StatusCode::kAlreadyExists);
}

TEST(ServerTest, IPv6) {
  if (!FindFreePort("::1").ok()) GTEST_SKIP() << "this host has no IPv6 loopback";
  auto server = RendezvousServer::Start({.address = "::1", .port = 0, .default_run_id = "run"});
  ASSERT_TRUE(server.ok()) << server.status();
  EXPECT_EQ((*server)->target(), "[::1]:" + std::to_string((*server)->port()));
  TestNode a((*server)->target(), MakeJoin("a", 1));
  EXPECT_TRUE(a.Next<Start>());
}

// gRPC ended its shared threads with the last user and sometimes aborted when the next came at that
// moment.
TEST(ServerTest, ManyOneAfterAnother) {
  for (int i = 0; i < 200; ++i) {
    auto server = StartServer();
    TestNode a(server->target(), MakeJoin("a", 1));
    ASSERT_TRUE(a.Next<Start>());
  }
}

TEST(ServerTest, AnEndWithNodesInIsQuick) {
  auto server = StartServer();
  TestNode a(server->target(), MakeJoin("a", 2));
  ASSERT_TRUE(a.Next<Waiting>());
  const auto before = std::chrono::steady_clock::now();
  server.reset();
  EXPECT_LT(std::chrono::steady_clock::now() - before, std::chrono::seconds(30));
}

}  // namespace
}  // namespace ddprun
