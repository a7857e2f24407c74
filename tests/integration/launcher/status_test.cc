// SPDX-License-Identifier: Apache-2.0
// `ddprun status` beside a run, as a person, a program and a probe call it.
#include <nlohmann/json.hpp>

#include "tests/integration/launcher/ddprun_fixture.h"

namespace ddprun {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;

class StatusTest : public DdprunPortTest {
 protected:
  // Ended.
  std::unique_ptr<RunningProcess> Status(std::vector<std::string> flags) const {
    flags.insert(flags.begin(),
                 {"status", "--master-addr", "127.0.0.1", "--master-port", std::to_string(port_)});
    auto process = Launch(std::move(flags));
    process->Wait();
    return process;
  }
  nlohmann::json Json() const { return nlohmann::json::parse(Status({"--json"})->out()); }
};

TEST_F(StatusTest, OfARunThatWaitsAndRuns) {
  const std::string script = "echo ready; exec sleep 100";
  auto first = LaunchNode(0, port_, script, {"--rdzv-id", "job", "--nproc-per-node", "2"});
  ASSERT_TRUE(first->WaitForText(" s left"));
  auto waiting = Status({});
  EXPECT_EQ(waiting->Wait(), 0) << waiting->err();
  EXPECT_THAT(waiting->out(), HasSubstr("run job: forming, round 1, 1 node is here of 2, "));
  EXPECT_THAT(waiting->out(), HasSubstr("waiting for 1 of 2 nodes: node rank 1 has not joined; "));

  auto second = LaunchNode(1, port_, script, {"--rdzv-id", "job"});
  ASSERT_TRUE(first->WaitForText("ready", 2) && second->WaitForText("ready"));
  auto running = Status({"--rdzv-id", "job"});
  EXPECT_EQ(running->err(), "");
  EXPECT_THAT(running->out(), HasSubstr("run job: running, round 1, world size 3, "));
  EXPECT_THAT(running->out(), HasSubstr("  NODE  HOST"));
  const auto run = Json()["runs"][0];
  EXPECT_EQ(run["nodes"][0]["ranks"], nlohmann::json({0, 1}));
  EXPECT_EQ(run["nodes"][1]["ranks"], nlohmann::json({2}));
  EXPECT_EQ(run["nodes"][1]["state"], "running");
  EXPECT_EQ(run["nodes"][1]["address"], "127.0.0.1");

  auto other = Status({"--rdzv-id", "other"});
  EXPECT_EQ(other->Wait(), 1);
  EXPECT_EQ(other->err(), "ddprun: the rendezvous service knows no run 'other'; it may be over\n");
  second->Signal(SIGTERM);
  EXPECT_EQ(first->Wait(), 143) << "nobody was disturbed by the questions";
}

TEST_F(StatusTest, AfterAnAgentWasKilled) {
  const std::vector<std::string> flags = {"--max-restarts", "1", "--lease", "3600"};
  auto first = LaunchNode(0, port_, "echo ready; exec sleep 100", flags);
  auto second = LaunchNode(1, port_, "echo ready; exec sleep 100", flags);
  ASSERT_TRUE(first->WaitForText("ready") && second->WaitForText("ready"));
  kill(AgentOf(*second), SIGKILL);
  ASSERT_TRUE(first->WaitForText("was lost")) << "the next round waits";
  const auto run = Json()["runs"][0];
  EXPECT_EQ(run["phase"], "forming");
  EXPECT_EQ(run["restarts_used"], 1);
  EXPECT_EQ(run["node_count"], 1);
  EXPECT_THAT(run["last_failure"]["sentence"].get<std::string>(),
              HasSubstr("its agent was killed by signal 9 (SIGKILL)"));
  EXPECT_THAT(run["reason"].get<std::string>(), HasSubstr("node rank 1 has not joined"));
}

TEST_F(StatusTest, WithoutAServiceOrAnotherTokenIsOneSentence) {
  auto nobody = Status({});
  EXPECT_EQ(nobody->Wait(), 1);
  EXPECT_EQ(nobody->err(), "ddprun: the rendezvous service at 127.0.0.1:" + std::to_string(port_) +
                               " is not reached: connection refused\n");
  auto node = LaunchNode(0, port_, "true");
  ASSERT_TRUE(node->WaitForText(" s left"));
  std::ofstream(folder_ + "/other")
      << "10112233445566778899aabbccddeeff0123456789abcdeffedcba9876543210";
  std::filesystem::permissions(folder_ + "/other", std::filesystem::perms::owner_read);
  auto stranger = Status({"--token-file", folder_ + "/other"});
  EXPECT_EQ(stranger->Wait(), 1);
  EXPECT_EQ(stranger->out(), "");
  EXPECT_THAT(stranger->err(), MatchesRegex("ddprun: [^\n]* has another token: [^\n]*\n"));
  auto plain = Status({"--insecure"});
  EXPECT_EQ(plain->Wait(), 1);
  EXPECT_THAT(plain->err(), HasSubstr("speaks TLS"));
}

TEST_F(StatusTest, AWrongCommandLineIsTwo) {
  auto unknown = Launch({"status"});
  EXPECT_EQ(unknown->Wait(), 2);
  EXPECT_THAT(unknown->err(), HasSubstr("which rendezvous service?"));
  auto help = Launch({"status", "--help"});
  EXPECT_EQ(help->Wait(), 0);
  EXPECT_THAT(help->out(), HasSubstr("Usage: ddprun status"));
}

// A program of that name is still run.
TEST_F(StatusTest, AProgramOfThatName) {
  const std::string program = folder_ + "/status";
  std::ofstream(program) << "#!/bin/sh\necho a program\n";
  std::filesystem::permissions(program, std::filesystem::perms::owner_all);
  variables_["PATH"] = folder_ + ":/usr/bin:/bin";
  auto run = Launch({"--", "status"});
  EXPECT_EQ(run->Wait(), 0) << run->err();
  EXPECT_THAT(run->out(), HasSubstr("a program"));
}

}  // namespace
}  // namespace ddprun
