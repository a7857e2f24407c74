// SPDX-License-Identifier: Apache-2.0
#include "launcher/processes/process_stat.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "launcher/base/limits.h"

namespace ddprun {
namespace {

using std::chrono::seconds;
using ::testing::HasSubstr;

TEST(StuckProcessTest, OneThatHangsInTheKernelIsSaidWhere) {
  const StuckProcess process = ParseStuckProcess(
      77, "Name:\tpython3 \nUmask:\t0022\nState:\tD (disk sleep)\nTracerPid:\t0\n",
      "request_wait_answer",
      "[<0>] request_wait_answer+0x13e/0x250\n[<0>] fuse_lookup+0x8f/0x220\n");
  EXPECT_EQ(ToText(process, seconds(10)),
            "process 77 (python3) has not ended 10 s after SIGKILL: it hangs in the kernel (state "
            "D, in request_wait_answer), most often in a file system or a driver; it is left "
            "behind\n    request_wait_answer\n    fuse_lookup");
}

TEST(StuckProcessTest, OneThatADebuggerHoldsIsSaidByWhom) {
  StuckProcess process =
      ParseStuckProcess(77, "Name:\ttrain\nState:\tZ (zombie)\nTracerPid:\t9\n", "0", "");
  EXPECT_EQ(process.tracer, "9");
  process.tracer = "9 (gdb)";
  EXPECT_EQ(ToText(process, seconds(5)),
            "process 77 (train) has not ended 5 s after SIGKILL: it is dead, but process 9 (gdb), "
            "which traces it, has not released it; it is left behind");
}

TEST(StuckProcessTest, ControlCharactersInItsNameAreReplaced) {
  EXPECT_EQ(ParseStuckProcess(77, "Name:\t\x1b[2Jtr\x07in\nState:\tZ (zombie)\n", "0", "").name,
            "tr?in");
}

TEST(StuckProcessTest, WhatCannotBeReadIsLeftOut) {
  EXPECT_THAT(ToText(ParseStuckProcess(77, "", "", ""), seconds(1)),
              HasSubstr("process 77 (?) has not ended 1 s after SIGKILL: it hangs in the kernel "
                        "(state ?), most"));
}

TEST(StuckProcessTest, ADeepStackIsCut) {
  std::string stack;
  for (int i = 0; i < 1000; ++i) stack += "[<0>] deeper+0x1/0x2\n";
  const StuckProcess process = ParseStuckProcess(1, "", "", stack);
  EXPECT_EQ(process.stack.size(), kKernelStackLinesMax * sizeof("deeper"));
}

TEST(StuckProcessTest, OneThatIsThere) {
  const StuckProcess self = LookAtStuckProcess(getpid());
  EXPECT_THAT(self.name, HasSubstr("unit_launcher"));
  EXPECT_EQ(self.state, 'R');
}

}  // namespace
}  // namespace ddprun
