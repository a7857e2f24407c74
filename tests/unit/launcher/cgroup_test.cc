// SPDX-License-Identifier: Apache-2.0
#include "launcher/processes/cgroup.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <string>

namespace ddprun {
namespace {

TEST(CgroupTest, WhereNoneCanBeMadeNothingHappens) {
  for (const std::string parent : {"", "/proc", "/does/not/exist"}) {
    const RunCgroup cgroup = RunCgroup::Make(parent, "test");
    EXPECT_FALSE(cgroup.exists()) << parent;
    EXPECT_EQ(cgroup.MakeRound(RoundId{1}), "");
    cgroup.Kill();
    cgroup.Remove();
  }
}

// Folders of any kind serve: the kernel's files in them are not there.
TEST(CgroupTest, AKilledOneIsNotUsedAgain) {
  std::string parent = ::testing::TempDir() + "/cgroup_test_XXXXXX";
  ASSERT_NE(mkdtemp(parent.data()), nullptr);
  std::filesystem::create_directory(parent + "/round_1");
  std::filesystem::create_directory(parent + "/round_2");
  WorkerCgroup cgroup;
  cgroup.Enter(parent + "/round_1");
  cgroup.Remove(/*keep=*/true);
  EXPECT_EQ(cgroup.path(), parent + "/round_1") << "workers that are kept live in it";
  cgroup.Kill();
  EXPECT_EQ(cgroup.path(), "");
  cgroup.Enter(parent + "/round_2");
  cgroup.Remove(/*keep=*/true);
  EXPECT_EQ(cgroup.path(), parent + "/round_2");
  EXPECT_FALSE(std::filesystem::exists(parent + "/round_1"));
  cgroup.Remove(/*keep=*/false);
  EXPECT_EQ(cgroup.path(), "");
  EXPECT_TRUE(std::filesystem::is_empty(parent));
  std::filesystem::remove(parent);
}

}  // namespace
}  // namespace ddprun
