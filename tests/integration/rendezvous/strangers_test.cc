// SPDX-License-Identifier: Apache-2.0
// Strangers that begin TLS handshakes and stall must not keep members out.
#include <gtest/gtest.h>

#include <chrono>

#include "rendezvous/process/resource_limit.h"
#include "rendezvous/security/hello_tag.h"
#include "tests/integration/rendezvous/service_program.h"
#include "tests/integration/rendezvous/test_node.h"
#include "tests/testing/certificates.h"
#include "tests/testing/client_hello.h"
#include "tests/testing/hostile_crowd.h"

namespace ddprun {
namespace {

using std::chrono::milliseconds;

constexpr char kToken[] = "00112233445566778899aabbccddeeff0123456789abcdeffedcba9876543210";
// Below 1 s where the machine has nothing else to do (tests/bench/strangers.py); without slots of
// their own members wait for 5 s and more.
constexpr milliseconds kJoinTimeMax{3000};

milliseconds TimeToJoin(const std::string& target, const std::string& name,
                        const TlsCredentials& credentials) {
  Join join = MakeJoin(name, 1);
  join.run_id = name;
  const auto begin = std::chrono::steady_clock::now();
  TestNode node(target, join, kEventDeadline, credentials);
  const auto start = node.Next<Start>();
  const auto time =
      std::chrono::duration_cast<milliseconds>(std::chrono::steady_clock::now() - begin);
  EXPECT_TRUE(start) << name;
  if (start) node.Send(NodeSucceeded{start->round});
  EXPECT_TRUE(node.Next<Finish>()) << name;
  return time;
}

struct Crowd {
  const char* name;
  int connections;
  int addresses;
};

class StrangersTest : public ::testing::TestWithParam<Crowd> {
 protected:
  StrangersTest() { RaiseFileLimit(); }
};

TEST_P(StrangersTest, MembersJoinAtOnce) {
  ServiceProgram service({}, {{"DDPRUN_TOKEN", kToken}});
  const Token token = *Token::Parse(kToken, "it");
  // Connected before, and must not notice anything.
  Join join = MakeJoin("before", 1);
  join.run_id = "before";
  TestNode before(service.target(), join, kEventDeadline,
                  *MintNodeCredentials(token, "before", "id-before"));
  const auto start = before.Next<Start>();
  ASSERT_TRUE(start);

  HostileCrowd crowd({.port = service.port(),
                      .connections = GetParam().connections,
                      .addresses = GetParam().addresses,
                      .first_bytes = MakeClientHello("rendezvous.ddprun")});
  ASSERT_TRUE(crowd.WaitUntilFull(kEventDeadline)) << crowd.made();
  for (int i = 0; i < 3; ++i) {
    const std::string name = "member-" + std::to_string(i);
    EXPECT_LT(TimeToJoin(service.target(), name, *MintNodeCredentials(token, name, "id-" + name)),
              kJoinTimeMax)
        << "after " << crowd.made() << " connections";
  }
#ifndef __SANITIZE_ADDRESS__
  EXPECT_LT(service.ResidentBytes(), 256u << 20);
#endif
  before.Send(NodeSucceeded{start->round});
  EXPECT_TRUE(before.Next<Finish>());
}

INSTANTIATE_TEST_SUITE_P(Crowds, StrangersTest,
                         ::testing::Values(Crowd{"OfOneAddress", 100, 1},
                                           Crowd{"Of500Addresses", 2000, 500},
                                           Crowd{"Of8000", 8000, 500}),
                         [](const auto& crowd) { return std::string(crowd.param.name); });

// Whoever has certificates of their own has no secret to show, and is a stranger until the end of
// the handshake: the crowd's unfinished ones are closed early.
TEST(StrangersWithOwnCertificatesTest, NodesGetIn) {
  RaiseFileLimit();
  const TestAuthority authority("ours");
  auto server = RendezvousServer::Start(
      {.address = "127.0.0.1",
       .credentials = authority.Issue({.alternative_name = "IP:127.0.0.1"})});
  ASSERT_TRUE(server.ok()) << server.status();
  HostileCrowd crowd({.port = (*server)->port(),
                      .connections = 100,
                      .first_bytes = MakeClientHello("rendezvous.ddprun")});
  ASSERT_TRUE(crowd.WaitUntilFull(kEventDeadline));
  EXPECT_LT(TimeToJoin((*server)->target(), "own", authority.Issue({})), kJoinTimeMax);
}

// A tag that somebody has recorded on the network takes slots of the node that it is of.
TEST(StrangersWithATagTest, TakeNoOthersSlots) {
  RaiseFileLimit();
  ServiceProgram service({}, {{"DDPRUN_TOKEN", kToken}});
  const Token token = *Token::Parse(kToken, "it");
  HostileCrowd crowd({.port = service.port(),
                      .connections = 300,
                      .first_bytes = MakeClientHello(MakeTaggedName(DeriveHelloKey(token)))});
  ASSERT_TRUE(crowd.WaitUntilFull(kEventDeadline));
  EXPECT_LT(
      TimeToJoin(service.target(), "member", *MintNodeCredentials(token, "member", "id-member")),
      kJoinTimeMax);
}

}  // namespace
}  // namespace ddprun
