// SPDX-License-Identifier: Apache-2.0
// Hosts that have the same name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "rendezvous/base/limits.h"
#include "rendezvous/membership/join_rules.h"
#include "tests/unit/rendezvous/membership_fixture.h"

namespace ddprun {
namespace {

using ::testing::HasSubstr;

class HostNamesTest : public ::testing::Test {
 protected:
  // A node of a host called ubuntu; nodes of one host have its address or its addresses.
  LinkId Joins(const std::string& id, const std::string& address,
               std::vector<std::string> addresses = {}) {
    Join join = MakeJoin("ubuntu", options_);
    join.node_id = NodeId{id};
    join.address = address;
    join.addresses = std::move(addresses);
    const LinkId link{++links_};
    run_.Do(NodeJoined{link, join});
    return link;
  }
  std::string HostOf(const std::string& id) { return run_.state.members.at(NodeId{id}).join.host; }

  JoinOptions options_{.nodes = 4, .restarts = 5, .nodes_min = 1};
  TestRun run_;
  std::uint64_t links_ = 0;
};

TEST_F(HostNamesTest, AnotherHostOfTheSameNameHasItsAddressToo) {
  Joins("a", "10.0.0.1", {"10.0.0.1", "172.17.0.1"});
  Joins("b", "10.0.0.2", {"10.0.0.2", "172.17.0.1"});
  Joins("c", "10.0.0.3");
  EXPECT_EQ(HostOf("a"), "ubuntu");
  EXPECT_EQ(HostOf("b"), "ubuntu at 10.0.0.2");
  EXPECT_EQ(HostOf("c"), "ubuntu at 10.0.0.3");
}

TEST_F(HostNamesTest, NodesOfOneHostHaveOneName) {
  Joins("a", "10.0.0.1", {"10.0.0.1", "fe80::1"});
  Joins("same addresses", "127.0.0.1", {"10.0.0.1", "fe80::1"});
  Joins("same address", "127.0.0.1");
  EXPECT_EQ(HostOf("same addresses"), "ubuntu");
  EXPECT_EQ(HostOf("same address"), "ubuntu");
}

TEST_F(HostNamesTest, AHostThatComesBackHasItsNameAgain) {
  const LinkId first = Joins("a", "10.0.0.1");
  Joins("b", "10.0.0.2");
  run_.Do(NodeGone{first});
  ASSERT_FALSE(run_.state.members.contains(NodeId{"a"}));
  Joins("b again", "10.0.0.2");
  Joins("a again", "10.0.0.1");
  EXPECT_EQ(HostOf("b again"), "ubuntu at 10.0.0.2");
  EXPECT_EQ(HostOf("a again"), "ubuntu");
}

TEST_F(HostNamesTest, AFailureIsThatHostsOwn) {
  options_ = {.nodes = 2, .restarts = 5};
  options_.policy.node_failures_max = 1;
  const LinkId a = Joins("a", "10.0.0.1");
  const LinkId b = Joins("b", "10.0.0.2");
  Joins("spare", "10.0.0.3");
  ASSERT_EQ(run_.state.phase, RunPhase::kSealed);
  run_.Reports(b, WorkerFailed{run_.state.round, ExitedWith(6)});
  run_.Reports(a, NodeStopped{run_.state.round, 1});
  run_.Reports(b, NodeStopped{run_.state.round, 1});
  EXPECT_TRUE(run_.state.members.contains(NodeId{"a"}));
  EXPECT_FALSE(run_.state.members.contains(NodeId{"b"}));
  EXPECT_THAT(run_.RefusalOf(b), HasSubstr("node ubuntu at 10.0.0.2 is left out after 1 failure"));
  EXPECT_THAT(run_.RefusalOf(Joins("b again", "10.0.0.2")), HasSubstr("is left out"));
  Joins("c", "10.0.0.4");
  EXPECT_TRUE(run_.state.members.contains(NodeId{"c"}));
}

TEST_F(HostNamesTest, HostsThatAreGoneAreForgottenAtSomeTime) {
  for (std::size_t i = 0; i < 3 * kFailedHostsMax; ++i) {
    Join join = MakeJoin(absl::StrCat("host-", i), options_);
    RememberHost(run_.state, join);
  }
  EXPECT_LE(run_.state.hosts.size(), 2 * kFailedHostsMax);
  Joins("a", "10.0.0.1");
  EXPECT_TRUE(run_.state.hosts.contains("ubuntu"));
}

}  // namespace
}  // namespace ddprun
