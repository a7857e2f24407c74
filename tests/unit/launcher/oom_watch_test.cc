// SPDX-License-Identifier: Apache-2.0
#include "launcher/processes/oom_watch.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

namespace ddprun {
namespace {

TEST(OomWatchTest, ReadsTheCounter) {
  EXPECT_EQ(ParseOomKills("low 0\noom 3\noom_kill 2\noom_group_kill 0\n"), 2);
  EXPECT_EQ(ParseOomKills("oom_kill_disable 0\nunder_oom 0\noom_kill 5\n"), 5);
  EXPECT_EQ(ParseOomKills(""), std::nullopt);
  EXPECT_EQ(ParseOomKills("oom_kill many\n"), std::nullopt);
}

TEST(OomWatchTest, ReadsTheKernelsLog) {
  auto kill = ParseKernelLog(
      "3,1,2,-;Memory cgroup out of memory: Killed process 5152 (python3) total-vm:203660kB, "
      "anon-rss:193536kB, file-rss:6612kB, shmem-rss:4kB, UID:0 pgtables:440kB oom_score_adj:0");
  ASSERT_TRUE(kill);
  EXPECT_EQ(kill->pid, 5152);
  EXPECT_EQ(kill->resident_bytes, (193536LL + 6612 + 4) * 1024);
  kill = ParseKernelLog(
      "6,1,2,-;oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,"
      "oom_memcg=/job,task_memcg=/job/a,task=python3,pid=5152,uid=0");
  ASSERT_TRUE(kill);
  EXPECT_EQ(kill->pid, 5152);
  EXPECT_EQ(kill->limited_cgroup, "/job");
  EXPECT_FALSE(ParseKernelLog("6,1,2,-;a worker printed: Killed process 7"));
  EXPECT_FALSE(ParseKernelLog("Out of memory: Killed process x"));
  EXPECT_FALSE(ParseKernelLog(""));
}

// A machine of files.
class OomWatchOfFilesTest : public ::testing::Test {
 protected:
  OomWatchOfFilesTest() {
    std::string pattern = (std::filesystem::temp_directory_path() / "ddprun-oom-XXXXXX").string();
    root_ = mkdtemp(pattern.data());
    Put("/proc/self/mountinfo", "41 31 0:38 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
    Put("/proc/self/cgroup", "0::/job/agent\n");
    Put("/proc/77/cgroup", "0::/job/agent\n");
    Put("/proc/meminfo", "MemTotal:       1048576 kB\nMemFree: 1 kB\n");
    Put("/sys/fs/cgroup/job/memory.max", "1000000\n");
    Put("/sys/fs/cgroup/job/memory.peak", "999000\n");
    Put("/sys/fs/cgroup/job/agent/memory.max", "max\n");
    Put("/sys/fs/cgroup/job/agent/memory.peak", "998000\n");
    Counted(4);
  }
  ~OomWatchOfFilesTest() override { std::filesystem::remove_all(root_); }
  void Put(const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text;
  }
  void Counted(int kills) {
    Put("/sys/fs/cgroup/job/agent/memory.events", "oom_kill " + std::to_string(kills) + "\n");
  }
  std::string root_;
};

TEST_F(OomWatchOfFilesTest, EachCountedKillExplainsOneDeath) {
  OomWatch watch(root_);
  watch.Begin();
  EXPECT_FALSE(watch.Explain(77)) << "what was counted before the round";
  Counted(5);
  EXPECT_TRUE(watch.Explain(77));
  EXPECT_FALSE(watch.Explain(77));
}

TEST_F(OomWatchOfFilesTest, TheLimitMayBeThatOfACgroupAbove) {
  OomWatch watch(root_);
  watch.Begin();
  Counted(5);
  EXPECT_EQ(watch.Explain(77), (OomKill{999'000, 1'000'000, true}));
}

TEST_F(OomWatchOfFilesTest, WithoutALimitItWasTheMachines) {
  Put("/sys/fs/cgroup/job/memory.max", "max\n");
  OomWatch watch(root_);
  watch.Begin();
  Counted(5);
  EXPECT_EQ(watch.Explain(77), (OomKill{0, 1LL << 30, false}));
}

TEST_F(OomWatchOfFilesTest, WithoutCgroupsNothingIsKnown) {
  std::filesystem::remove(root_ + "/proc/self/mountinfo");
  OomWatch watch(root_);
  watch.Begin();
  EXPECT_FALSE(watch.Explain(77));
  EXPECT_FALSE(watch.Explain(78));
}

}  // namespace
}  // namespace ddprun
