// SPDX-License-Identifier: Apache-2.0
// Whom node 0's service refuses is said on node 0's console, where somebody waits for that node.
#include <ctime>

#include "rendezvous/security/credentials.h"
#include "tests/integration/launcher/ddprun_fixture.h"
#include "tests/integration/rendezvous/test_node.h"

namespace ddprun {
namespace {

using ::testing::HasSubstr;

class RefusedNodesTest : public DdprunPortTest {
 protected:
  // Node 0 of two, which waits; refused nodes must not end it.
  std::unique_ptr<RunningProcess> LaunchFirst() const {
    return LaunchNode(0, port_, "true", {"--event-log", folder_ + "/events"});
  }
  void ExpectRefusedEvent(const std::string& words) const {
    EXPECT_THAT(Content("events"), HasSubstr("\"event\":\"node.refused\""));
    EXPECT_THAT(Content("events"), HasSubstr(words));
  }
};

TEST_F(RefusedNodesTest, AnotherNumberOfNodes) {
  auto first = LaunchFirst();
  ASSERT_TRUE(first->WaitForText(" s left"));
  auto other = Launch({"--nnodes", "3", "--node-rank", "1", "--master-addr", "127.0.0.1",
                       "--master-port", std::to_string(port_), "true"});
  EXPECT_EQ(other->Wait(), 1);
  EXPECT_TRUE(first->WaitForText("ddprun: refused a node: node "));
  EXPECT_TRUE(first->WaitForText("was started with --nnodes 3, the run has --nnodes 2"));
  auto second = LaunchNode(1, port_, "true");
  EXPECT_EQ(second->Wait(), 0) << second->err();
  EXPECT_EQ(first->Wait(), 0) << first->err();
  ExpectRefusedEvent("was started with --nnodes 3");
}

TEST_F(RefusedNodesTest, AClockThatIsAYearBehind) {
  auto first = LaunchFirst();
  ASSERT_TRUE(first->WaitForText(" s left"));
  const auto token = ReadTokenFile(folder_ + "/config/ddprun/token");
  ASSERT_TRUE(token.ok()) << token.status();
  {
    TestNode other(
        "127.0.0.1:" + std::to_string(port_), MakeJoin("a", 2), kEventDeadline,
        *MintNodeCredentials(*token, "run", "id-a", std::time(nullptr) - 365L * 24 * 3600));
    EXPECT_TRUE(other.Next<SessionEnded>());
  }
  EXPECT_TRUE(
      first->WaitForText("ddprun: refused a node: its certificate expired 275 days ago by this "
                         "host's clock: the clocks of the two machines differ, or"));
  auto second = LaunchNode(1, port_, "true");
  EXPECT_EQ(second->Wait(), 0) << second->err();
  EXPECT_EQ(first->Wait(), 0) << first->err();
  ExpectRefusedEvent("set both clocks, e.g. by NTP");
}

TEST_F(RefusedNodesTest, ARankThatIsTaken) {
  auto first = LaunchFirst();
  ASSERT_TRUE(first->WaitForText(" s left"));
  auto other = Launch({"--nnodes", "2", "--node-rank", "0", "--rdzv-endpoint",
                       "127.0.0.1:" + std::to_string(port_), "true"});
  EXPECT_EQ(other->Wait(), 1);
  EXPECT_TRUE(first->WaitForText("ddprun: refused a node: node rank 0 is held by node "));
  auto second = LaunchNode(1, port_, "true");
  EXPECT_EQ(second->Wait(), 0) << second->err();
  EXPECT_EQ(first->Wait(), 0) << first->err();
  ExpectRefusedEvent("node rank 0 is held by node ");
}

}  // namespace
}  // namespace ddprun
