// SPDX-License-Identifier: Apache-2.0
#include "launcher/base/cgroup_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ddprun {
namespace {

using ::testing::ElementsAre;

// Path of the version 2 cgroup; empty: none.
std::string PathOf(const std::string& mountinfo, const std::string& membership) {
  const auto found = FindCgroup(mountinfo, membership, /*controller=*/"");
  return found.has_value() ? found->path : "";
}

constexpr char kUnified[] =
    "24 30 0:22 / /proc rw,nosuid shared:12 - proc proc rw\n"
    "31 23 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n";

TEST(CgroupFolderTest, TheFolderIsBelowTheMountPoint) {
  EXPECT_EQ(PathOf(kUnified, "0::/user.slice/user-1000.slice/job.scope\n"),
            "/sys/fs/cgroup/user.slice/user-1000.slice/job.scope");
  EXPECT_EQ(PathOf(kUnified, "0::/\n"), "/sys/fs/cgroup");
}

TEST(CgroupFolderTest, VersionOneBesideItIsNotLookedAt) {
  const std::string mounts =
      "34 31 0:30 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
      "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
  EXPECT_EQ(PathOf(mounts, "4:memory:/job\n0::/a\n"), "/sys/fs/cgroup/unified/a");
}

TEST(CgroupFolderTest, AMountThatShowsAPartOfTheTree) {
  const std::string mounts = "41 31 0:38 /pod/one /sys/fs/cgroup ro - cgroup2 cgroup2 rw\n";
  EXPECT_EQ(PathOf(mounts, "0::/pod/one/inner\n"), "/sys/fs/cgroup/inner");
  EXPECT_EQ(PathOf(mounts, "0::/pod/two\n"), "");
}

TEST(CgroupFolderTest, WithoutVersionTwoThereIsNone) {
  EXPECT_EQ(PathOf("34 31 0:30 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n",
                   "4:memory:/job\n"),
            "");
  EXPECT_EQ(PathOf(kUnified, "0::/../elsewhere\n"), "");
  EXPECT_EQ(PathOf("", ""), "");
}

TEST(CgroupFolderTest, VersionOneIsTakenWhereItHasTheController) {
  const std::string mounts =
      "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n"
      "36 31 0:33 /docker/x /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n"
      "41 31 0:38 / /sys/fs/cgroup/unified rw shared:3 - cgroup2 cgroup2 rw\n";
  const std::string membership = "5:devices:/\n4:memory:/a/b\n3:cpu,cpuacct:/docker/x\n0::/c\n";
  const auto memory = FindCgroup(mounts, membership, "memory");
  ASSERT_TRUE(memory);
  EXPECT_FALSE(memory->v2);
  EXPECT_THAT(memory->AndAbove(), ElementsAre("/sys/fs/cgroup/memory/a/b",
                                              "/sys/fs/cgroup/memory/a", "/sys/fs/cgroup/memory"));
  EXPECT_EQ(FindCgroup(mounts, membership, "cpu")->path, "/sys/fs/cgroup/cpu");
  const auto pids = FindCgroup(mounts, membership, "pids");
  ASSERT_TRUE(pids);
  EXPECT_TRUE(pids->v2);
  EXPECT_EQ(pids->path, "/sys/fs/cgroup/unified/c");
  EXPECT_FALSE(FindCgroup(mounts, "4:memory:/a\n", "pids"));
}

TEST(CgroupFolderTest, ARemovedOneKeepsItsName) {
  EXPECT_EQ(PathOf(kUnified, "0::/gone (deleted)\n"), "/sys/fs/cgroup/gone");
}

}  // namespace
}  // namespace ddprun
