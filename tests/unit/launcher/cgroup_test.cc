// SPDX-License-Identifier: Apache-2.0
#include "launcher/processes/cgroup.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace ddprun
