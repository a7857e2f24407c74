// SPDX-License-Identifier: Apache-2.0
// ddpctl beside a run, as a person and a program call it.
#include "tests/integration/launcher/ddprun_fixture.h"

namespace ddprun {
namespace {

using ::testing::HasSubstr;

class CtlTest : public DdprunPortTest {
 protected:
  std::vector<std::string> Service() const {
    return {"--master-addr", "127.0.0.1", "--master-port", std::to_string(port_)};
  }
  std::unique_ptr<RunningProcess> Ask(std::vector<std::string> words) const {
    const auto service = Service();
    words.insert(words.end(), service.begin(), service.end());
    return Ctl(std::move(words));
  }
  // One of a run of 1:3 nodes.
  std::unique_ptr<RunningProcess> LaunchElastic(int node_rank) const {
    std::vector<std::string> arguments = {"--nnodes", "2:3",         "--last-call",
                                          "0.2",      "--node-rank", std::to_string(node_rank)};
    const auto service = Service();
    arguments.insert(arguments.end(), service.begin(), service.end());
    arguments.insert(arguments.end(),
                     {"sh", "-c", "echo round $DDPRUN_ROUND of $WORLD_SIZE; exec sleep 100"});
    return Launch(std::move(arguments));
  }
};

TEST_F(CtlTest, StopEndsEveryNodeWithOneVerdict) {
  auto first = LaunchNode(0, port_, "echo ready; exec sleep 100", {"--max-restarts", "3"});
  auto second = LaunchNode(1, port_, "echo ready; exec sleep 100", {"--max-restarts", "3"});
  ASSERT_TRUE(first->WaitForText("ready") && second->WaitForText("ready"));
  auto stop = Ask({"stop"});
  EXPECT_EQ(stop->Wait(), 0) << stop->err();
  EXPECT_THAT(stop->out(), HasSubstr(" ends on 2 nodes: the workers get SIGTERM; ddprun's exit "
                                     "code is 143 on each\n"));
  for (auto* node : {first.get(), second.get()}) {
    EXPECT_EQ(node->Wait(), 143);
    EXPECT_THAT(node->err(), HasSubstr("ddprun: run ended: stopped by ddpctl from "));
  }
}

// A run of one node can be asked where it has an endpoint.
TEST_F(CtlTest, StopNowDoesNotAskTheWorkers) {
  const std::string endpoint = "127.0.0.1:" + std::to_string(port_);
  auto node = Launch({"--rdzv-endpoint", endpoint, "--nnodes", "1", "sh", "-c",
                      "trap '' TERM; echo ready; exec sleep 100"});
  ASSERT_TRUE(node->WaitForText("ready"));
  auto stop = Ctl({"stop", "--now", "--rdzv-endpoint", endpoint});
  EXPECT_EQ(stop->Wait(), 0) << stop->err();
  EXPECT_EQ(node->Wait(), 137);
}

TEST_F(CtlTest, DrainLetsOneNodeGoAndTheOthersGoOn) {
  auto first = LaunchElastic(0);
  auto second = LaunchElastic(1);
  auto third = LaunchElastic(2);
  ASSERT_TRUE(first->WaitForText("round 1 of 3"));
  auto only_said = Ask({"drain", "2", "--dry-run"});
  EXPECT_THAT(only_said->out(), HasSubstr("the run goes on with 2 of at most 3 nodes"));
  auto drain = Ask({"drain", "2"});
  EXPECT_EQ(drain->out(), only_said->out());
  EXPECT_EQ(third->Wait(), 0);
  EXPECT_THAT(third->err(), HasSubstr("this node has left the run: node "));
  ASSERT_TRUE(first->WaitForText("round 2 of 2") && second->WaitForText("round 2 of 2"));
  EXPECT_THAT(first->err(), HasSubstr("was drained by ddpctl from "));
  auto refused = Ask({"drain", "1"});
  EXPECT_EQ(refused->Wait(), 1);
  EXPECT_THAT(refused->err(), HasSubstr("start another one first, or let the run wait"));
  auto host = Ask({"drain", "0", "--force"});
  EXPECT_EQ(host->Wait(), 1);
  EXPECT_THAT(host->err(), HasSubstr("hosts the run's rendezvous service"));
  EXPECT_EQ(Ask({"stop", "--now"})->Wait(), 0);
  EXPECT_EQ(first->Wait(), 137);
}

TEST_F(CtlTest, OneSentenceWhereItCannotBe) {
  auto nobody = Ask({"stop"});
  EXPECT_EQ(nobody->Wait(), 1);
  EXPECT_EQ(nobody->err(), "ddpctl: the rendezvous service at 127.0.0.1:" + std::to_string(port_) +
                               " is not reached: connection refused\n");
  auto node = LaunchNode(0, port_, "true");
  ASSERT_TRUE(node->WaitForText(" s left"));
  EXPECT_THAT(Ask({"stop", "--rdzv-id", "other"})->err(), HasSubstr("knows no run 'other'"));
  EXPECT_THAT(Ask({"stop", "--insecure"})->err(), HasSubstr("speaks TLS"));
  EXPECT_EQ(Ctl({"halt"})->Wait(), 2);
}

}  // namespace
}  // namespace ddprun
