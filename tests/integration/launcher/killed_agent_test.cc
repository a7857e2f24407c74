// SPDX-License-Identifier: Apache-2.0
// kill -9 of an agent: its own workers end, and the other node is told whose agent it was and how
// it ended, long before a lease is over.
#include "launcher/base/limits.h"
#include "tests/integration/launcher/ddprun_fixture.h"
#include "tests/integration/rendezvous/service_program.h"

namespace ddprun {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kHow[] = "was lost: its agent was killed by signal 9 (SIGKILL)";

class KilledAgentTest : public DdprunPortTest {
 protected:
  static void KillAgentOf(const RunningProcess& node) { kill(AgentOf(node), SIGKILL); }

  // So that only a report can end the wait for it in time.
  const std::vector<std::string> long_lease_ = {"--lease", "3600"};
};

TEST_F(KilledAgentTest, EndsTheRunWithTheCauseInWords) {
  auto first = LaunchNode(0, port_, "echo ready; exec sleep 100", long_lease_);
  auto second = LaunchNode(1, port_, "echo pid=$$; exec sleep 100", long_lease_);
  ASSERT_TRUE(first->WaitForText("ready") && second->WaitForText("pid="));
  const ProcessWatch worker(NumberAfter("pid=", second->out()));
  KillAgentOf(*second);
  EXPECT_EQ(second->Wait(), 137);
  EXPECT_THAT(second->err(), HasSubstr("was killed by signal 9 (SIGKILL); all of its workers"));
  EXPECT_THAT(second->err(), Not(HasSubstr("could not be informed")));
  EXPECT_TRUE(worker.WaitForEnd());
  EXPECT_EQ(first->Wait(), 1);
  EXPECT_THAT(first->err(), HasSubstr(std::string("ddprun: run failed: node ")));
  EXPECT_THAT(first->err(), HasSubstr(std::string("(node rank 1) ") + kHow));
}

TEST_F(KilledAgentTest, WithARestartLeftTheOthersWaitForAReplacementAndSayWhy) {
  std::vector<std::string> flags = long_lease_;
  flags.insert(flags.end(), {"--max-restarts", "1"});
  const std::string script =
      "echo round $DDPRUN_ROUND; [ $DDPRUN_ROUND = 2 ] || exec sleep 100; exit 0";
  auto first = LaunchNode(0, port_, script, flags);
  auto second = LaunchNode(1, port_, script, flags);
  ASSERT_TRUE(first->WaitForText("round 1") && second->WaitForText("round 1"));
  KillAgentOf(*second);
  EXPECT_TRUE(first->WaitForText(kHow)) << "while it waits";
  EXPECT_THAT(first->err(), HasSubstr("waiting for 1 of 2 nodes: node rank 1 has not joined"));
  auto third = LaunchNode(1, port_, script, flags);
  EXPECT_EQ(third->Wait(), 0) << third->err();
  EXPECT_EQ(first->Wait(), 0) << first->err();
  EXPECT_THAT(first->err(), HasSubstr("restart 1 of 1 as round 2: node "));
  EXPECT_EQ(second->Wait(), 137);
}

// The service dies with the agent that hosts it: there is nobody to tell, and nothing to wait for.
TEST_F(KilledAgentTest, ThatHostsTheServiceHasNobodyToTell) {
  const std::string endpoint = "127.0.0.1:" + std::to_string(port_);
  const std::vector<std::string> by_endpoint = {"--nnodes",
                                                "1:2",
                                                "--rdzv-endpoint",
                                                endpoint,
                                                "--rdzv-id",
                                                "job",
                                                "--last-call",
                                                "0.1",
                                                "sh",
                                                "-c",
                                                "echo ready; exec sleep 100"};
  auto alone = Launch(by_endpoint);
  ASSERT_TRUE(alone->WaitForText("ready"));
  KillAgentOf(*alone);
  EXPECT_EQ(alone->Wait(), 137);
  EXPECT_THAT(alone->err(), Not(HasSubstr("could not be informed")));
}

TEST_F(KilledAgentTest, AServiceThatDoesNotAnswerIsNamedAndNotWaitedFor_RealTime) {
  const ServiceProgram service({"--insecure"}, variables_);
  ASSERT_NE(service.port(), 0);
  auto node = Launch({"--insecure", "--nnodes", "1", "--rdzv-endpoint", service.target(),
                      "--rdzv-id", "job", "sh", "-c", "echo ready; exec sleep 100"});
  ASSERT_TRUE(node->WaitForText("ready"));
  kill(service.pid(), SIGSTOP);
  KillAgentOf(*node);
  EXPECT_EQ(node->Wait(), 137);
  EXPECT_THAT(node->err(), HasSubstr("the rendezvous service at " + service.target() +
                                     " could not be informed: "));
  kill(service.pid(), SIGCONT);
  EXPECT_THAT(node->err(), HasSubstr("the other nodes notice when the lease (10 s) expires"));
}

}  // namespace
}  // namespace ddprun
