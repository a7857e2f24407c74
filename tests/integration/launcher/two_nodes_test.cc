// SPDX-License-Identifier: Apache-2.0
// Two ddprun processes on the loopback address are two nodes.
#include "tests/integration/launcher/ddprun_fixture.h"

namespace ddprun {
namespace {

using ::testing::HasSubstr;

class TwoNodesTest : public DdprunPortTest {};

TEST_F(TwoNodesTest, RanksFollowNodeRanksWhateverTheOrderOfArrival) {
  const std::string script =
      "echo rank $RANK of $WORLD_SIZE, $LOCAL_RANK of $LOCAL_WORLD_SIZE, group $GROUP_RANK of "
      "$GROUP_WORLD_SIZE at $MASTER_ADDR:$MASTER_PORT";
  auto second = LaunchNode(1, port_, script, {"--nproc-per-node", "1"});
  auto first = LaunchNode(0, port_, script, {"--nproc-per-node", "2"});
  EXPECT_EQ(first->Wait(), 0) << first->err();
  EXPECT_EQ(second->Wait(), 0) << second->err();
  EXPECT_THAT(first->out(), HasSubstr(":1] rank 1 of 3, 1 of 2, group 0 of 2 at 127.0.0.1:"));
  EXPECT_THAT(second->out(), HasSubstr(":2] rank 2 of 3, 0 of 1, group 1 of 2 at 127.0.0.1:"));
  const std::string address = "127.0.0.1:";
  const int port = NumberAfter(address, first->out());
  EXPECT_EQ(NumberAfter(address, second->out()), port);
  EXPECT_NE(port, port_);
}

TEST_F(TwoNodesTest, AFailureOnOneNodeStopsTheOtherAtOnceWithTheSameVerdict) {
  // Rank 0 ends by SIGTERM: nothing else would end it before the test's deadline.
  const std::string script = "if [ $RANK = 1 ]; then echo ready; while [ ! -e " + folder_ +
                             "/go ]; do sleep 0.01; done; echo broken; exit 9; fi; "
                             "trap 'echo stopped; exit 4' TERM; echo ready; sleep 1000 & wait";
  auto first = LaunchNode(0, port_, script, {"--term-timeout", "3600"});
  auto second = LaunchNode(1, port_, script, {"--term-timeout", "3600"});
  ASSERT_TRUE(first->WaitForText("ready"));
  std::ofstream(folder_ + "/go") << "x";
  EXPECT_EQ(first->Wait(), 9);
  EXPECT_EQ(second->Wait(), 9);
  EXPECT_THAT(first->out(), HasSubstr("stopped\n"));
  EXPECT_THAT(first->err(), HasSubstr("ddprun: run failed: rank 1 (local rank 0 on host"));
  EXPECT_THAT(
      first->err(),
      HasSubstr("    broken\n  the others:\n    rank 0 was stopped by ddprun\n  exit code: 9\n"));
  EXPECT_EQ(first->err(), second->err());
}

TEST_F(TwoNodesTest, BothNodesRestart) {
  const std::string script =
      "[ $DDPRUN_ROUND = 2 ] || [ $RANK = 0 ] || exit 9; [ $DDPRUN_ROUND = 2 ] || sleep 100; "
      "echo round $DDPRUN_ROUND rank $RANK";
  auto first = LaunchNode(0, port_, script, {"--max-restarts", "1"});
  auto second = LaunchNode(1, port_, script, {"--max-restarts", "1"});
  EXPECT_EQ(first->Wait(), 0) << first->err();
  EXPECT_EQ(second->Wait(), 0) << second->err();
  EXPECT_THAT(first->out(), HasSubstr(":0] round 2 rank 0\n"));
  EXPECT_THAT(second->out(), HasSubstr(":1] round 2 rank 1\n"));
}

TEST_F(TwoNodesTest, ASignalOnOneNodeEndsTheOther) {
  auto first = LaunchNode(0, port_, "echo ready; exec sleep 100");
  auto second = LaunchNode(1, port_, "echo ready; exec sleep 100");
  ASSERT_TRUE(first->WaitForText("ready") && second->WaitForText("ready"));
  second->Signal(SIGTERM);
  EXPECT_EQ(second->Wait(), 143);
  EXPECT_EQ(first->Wait(), 143);
  EXPECT_THAT(first->err(), HasSubstr("SIGTERM"));
}

TEST_F(TwoNodesTest, ASignalOnTheHostingNodeEndsTheOther) {
  auto first = LaunchNode(0, port_, "echo ready; exec sleep 100", {"--max-restarts", "5"});
  auto second = LaunchNode(1, port_, "echo ready; exec sleep 100", {"--max-restarts", "5"});
  ASSERT_TRUE(first->WaitForText("ready") && second->WaitForText("ready"));
  first->Signal(SIGINT);
  EXPECT_EQ(first->Wait(), 130);
  EXPECT_EQ(second->Wait(), 130);
  EXPECT_THAT(second->err(), HasSubstr("SIGINT"));
}

TEST_F(TwoNodesTest, ALostNodeEndsTheOther) {
  auto first = LaunchNode(0, port_, "echo ready; exec sleep 100");
  auto second = LaunchNode(1, port_, "echo pid=$$; exec sleep 100");
  ASSERT_TRUE(first->WaitForText("ready") && second->WaitForText("pid="));
  const ProcessWatch worker(NumberAfter("pid=", second->out()));
  kill(AgentOf(*second), SIGKILL);
  EXPECT_EQ(first->Wait(), 1);
  EXPECT_THAT(first->err(), HasSubstr("was lost"));
  EXPECT_EQ(second->Wait(), 137);
  EXPECT_TRUE(worker.WaitForEnd());
}

TEST_F(TwoNodesTest, ALostServiceEndsTheOthers) {
  auto first = LaunchNode(0, port_, "echo ready; exec sleep 100");
  auto second = LaunchNode(1, port_, "echo pid=$$; exec sleep 100");
  ASSERT_TRUE(first->WaitForText("ready") && second->WaitForText("pid="));
  const ProcessWatch worker(NumberAfter("pid=", second->out()));
  kill(AgentOf(*first), SIGKILL);
  EXPECT_EQ(second->Wait(), 1);
  EXPECT_THAT(second->err(),
              HasSubstr("lost the rendezvous service at 127.0.0.1:" + std::to_string(port_)));
  EXPECT_TRUE(worker.WaitForEnd());
  EXPECT_EQ(first->Wait(), 137);
}

TEST_F(TwoNodesTest, APortInUseIsNamed) {
  auto first = LaunchNode(0, port_, "exec sleep 100");
  ASSERT_TRUE(first->WaitForText(" s left"));
  auto other = LaunchNode(0, port_, "true");
  EXPECT_EQ(other->Wait(), 1);
  EXPECT_THAT(other->err(), HasSubstr(std::to_string(port_)));
  EXPECT_THAT(other->err(), HasSubstr("--master-port"));
}

TEST_F(TwoNodesTest, AMasterThatIsNotThereYetIsWaitedFor) {
  auto second = LaunchNode(1, port_, "true");
  ASSERT_TRUE(second->WaitForText("is not reached yet"));
  auto first = LaunchNode(0, port_, "true");
  EXPECT_EQ(first->Wait(), 0) << first->err();
  EXPECT_EQ(second->Wait(), 0) << second->err();
}

TEST_F(TwoNodesTest, AMasterThatDoesNotComeIsNamed) {
  auto run = LaunchNode(1, port_, "true", {"--join-timeout", "1"});
  EXPECT_EQ(run->Wait(), 1);
  EXPECT_THAT(run->err(),
              HasSubstr("ddprun: the rendezvous service at 127.0.0.1:" + std::to_string(port_) +
                        " was not reached within 1 s: connection refused; check"));
}

TEST_F(TwoNodesTest, ANodeThatDoesNotComeIsNamed) {
  auto run = LaunchNode(0, port_, "true", {"--join-timeout", "1"});
  EXPECT_EQ(run->Wait(), 1);
  EXPECT_THAT(run->err(), HasSubstr("ddprun: run failed: "));
}

TEST_F(TwoNodesTest, NodesThatDisagreeAreTold) {
  auto first = LaunchNode(0, port_, "true", {"--join-timeout", "3"});
  ASSERT_TRUE(first->WaitForText(" s left"));
  auto other = Launch({"--nnodes", "3", "--node-rank", "1", "--master-addr", "127.0.0.1",
                       "--master-port", std::to_string(port_), "true"});
  EXPECT_EQ(other->Wait(), 1);
  EXPECT_THAT(other->err(), HasSubstr("--nnodes 3"));
  EXPECT_THAT(other->err(), HasSubstr("--nnodes 2"));
}

TEST_F(TwoNodesTest, AnEndpointOnThisMachineIsHostedByWhoeverComesFirst) {
  const std::vector<std::string> arguments = {"--nnodes",
                                              "2",
                                              "--rdzv-backend",
                                              "c10d",
                                              "--rdzv-id",
                                              "job7",
                                              "--rdzv-endpoint",
                                              "localhost:" + std::to_string(port_),
                                              "sh",
                                              "-c",
                                              "echo rank $RANK of run $TORCHELASTIC_RUN_ID"};
  auto one = Launch(arguments);
  auto two = Launch(arguments);
  EXPECT_EQ(one->Wait(), 0) << one->err();
  EXPECT_EQ(two->Wait(), 0) << two->err();
  const std::string both = one->out() + two->out();
  EXPECT_THAT(both, HasSubstr("rank 0 of run job7"));
  EXPECT_THAT(both, HasSubstr("rank 1 of run job7"));
}

}  // namespace
}  // namespace ddprun
