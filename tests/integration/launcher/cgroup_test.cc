// SPDX-License-Identifier: Apache-2.0
// The rounds' cgroups, where this machine lets one be made.
#include "launcher/processes/cgroup.h"

#include <sys/stat.h>

#include "tests/integration/launcher/ddprun_fixture.h"
#include "tests/testing/eventually.h"

namespace ddprun {
namespace {

using ::testing::HasSubstr;

class CgroupRunTest : public DdprunTest {
 protected:
  void SetUp() override {
    DdprunTest::SetUp();
    const RunCgroup trial = RunCgroup::Make(OwnCgroup(), "trial-" + std::to_string(::getpid()));
    if (!trial.exists()) GTEST_SKIP() << "no cgroup can be made here";
    trial.Remove();
  }

  // The run's folder, from a worker's `cat /proc/self/cgroup`.
  static std::string FolderIn(const std::string& out) {
    const std::size_t begin = out.find("/ddprun-", out.find("0::"));
    return OwnCgroup() + out.substr(begin, out.find('/', begin + 1) - begin);
  }
};

TEST_F(CgroupRunTest, EachRoundHasItsOwnAndNoneIsLeft) {
  auto run = Launch({"--max-restarts", "1", "--leftover-timeout", "0", "sh", "-c",
                     "cat /proc/self/cgroup; setsid sleep 100 & [ $DDPRUN_ROUND = 2 ]"});
  EXPECT_EQ(run->Wait(), 0) << run->err();
  EXPECT_THAT(run->out(), HasSubstr("/round_1\n"));
  EXPECT_THAT(run->out(), HasSubstr("/round_2\n"));
  EXPECT_FALSE(std::filesystem::exists(FolderIn(run->out()))) << FolderIn(run->out());
}

TEST_F(CgroupRunTest, WhatNobodyIsLeftToEndTheNextOneEnds) {
  auto run = Launch(
      {"sh", "-c", "cat /proc/self/cgroup; setsid sh -c 'echo far=$$; exec sleep 100' & wait"});
  ASSERT_TRUE(run->WaitForText("far="));
  const ProcessWatch far(NumberAfter("far=", run->out()));
  ASSERT_TRUE(far.found());
  const std::string folder = FolderIn(run->out());
  ASSERT_TRUE(std::filesystem::exists(folder)) << folder;
  const pid_t agent = AgentOf(*run);
  const pid_t keeper = KeeperOf(*run);
  const ProcessWatch agent_end(agent);
  const ProcessWatch keeper_end(keeper);
  for (const pid_t pid : {agent, keeper, run->pid()})
    kill(pid, SIGSTOP);  // none sees the others go
  for (const pid_t pid : {agent, keeper, run->pid()}) kill(pid, SIGKILL);
  EXPECT_EQ(run->Wait(), 137);
  // As long as one of them lives, the cgroup is locked, and the next one leaves it alone.
  ASSERT_TRUE(agent_end.WaitForEnd() && keeper_end.WaitForEnd());

  auto next = Launch({"true"});
  EXPECT_EQ(next->Wait(), 0);
  EXPECT_TRUE(far.WaitForEnd());
  // The next one may be another test's, which is not waited for.
  EXPECT_TRUE(Eventually([&] { return !std::filesystem::exists(folder); })) << folder;
  std::filesystem::remove_all(folder_ + "/runtime");  // the killed one's
  std::filesystem::create_directory(folder_ + "/runtime");
}

TEST_F(CgroupRunTest, OneThatRunsIsNotTakenForAbandoned) {
  ASSERT_EQ(mkfifo((folder_ + "/go").c_str(), 0600), 0);
  auto run = Launch({"sh", "-c", "echo ready; read line < " + folder_ + "/go; exit 5"});
  ASSERT_TRUE(run->WaitForText("ready"));
  EXPECT_EQ(Launch({"true"})->Wait(), 0);
  std::ofstream(folder_ + "/go") << "x\n";
  EXPECT_EQ(run->Wait(), 5);
}

}  // namespace
}  // namespace ddprun
