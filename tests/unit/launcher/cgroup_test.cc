// SPDX-License-Identifier: Apache-2.0
#include "launcher/processes/cgroup.h"

#include <gtest/gtest.h>

namespace ddprun {
namespace {

constexpr char kUnified[] =
    "24 30 0:22 / /proc rw,nosuid shared:12 - proc proc rw\n"
    "31 23 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n";

TEST(CgroupTest, TheFolderIsBelowTheMountPoint) {
  EXPECT_EQ(CgroupFolder(kUnified, "0::/user.slice/user-1000.slice/job.scope\n"),
            "/sys/fs/cgroup/user.slice/user-1000.slice/job.scope");
  EXPECT_EQ(CgroupFolder(kUnified, "0::/\n"), "/sys/fs/cgroup");
}

TEST(CgroupTest, VersionOneBesideItIsNotLookedAt) {
  const std::string mounts =
      "34 31 0:30 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
      "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
  EXPECT_EQ(CgroupFolder(mounts, "4:memory:/job\n0::/a\n"), "/sys/fs/cgroup/unified/a");
}

TEST(CgroupTest, AMountThatShowsAPartOfTheTree) {
  const std::string mounts = "41 31 0:38 /pod/one /sys/fs/cgroup ro - cgroup2 cgroup2 rw\n";
  EXPECT_EQ(CgroupFolder(mounts, "0::/pod/one/inner\n"), "/sys/fs/cgroup/inner");
  EXPECT_EQ(CgroupFolder(mounts, "0::/pod/two\n"), "");
}

TEST(CgroupTest, WithoutVersionTwoThereIsNone) {
  EXPECT_EQ(CgroupFolder("34 31 0:30 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n",
                         "4:memory:/job\n"),
            "");
  EXPECT_EQ(CgroupFolder(kUnified, "0::/../elsewhere\n"), "");
  EXPECT_EQ(CgroupFolder("", ""), "");
}

TEST(CgroupTest, WhereNoneCanBeMadeNothingHappens) {
  for (const std::string parent : {"", "/proc", "/does/not/exist"}) {
    const RunCgroup cgroup = RunCgroup::Make(parent, "test");
    EXPECT_FALSE(cgroup.exists()) << parent;
    EXPECT_EQ(cgroup.MakeRound(RoundId{1}), "");
    cgroup.Kill();
    cgroup.Remove();
  }
}

}  // namespace
}  // namespace ddprun
