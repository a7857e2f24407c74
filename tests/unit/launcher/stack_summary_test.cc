// SPDX-License-Identifier: Apache-2.0
#include "launcher/supervisor/stack_summary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launcher/base/limits.h"

namespace ddprun {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::StartsWith;

std::vector<std::string> ThreadOf(const std::string& name, std::size_t frames) {
  std::vector<std::string> lines = {"  " + name};
  for (std::size_t i = 0; i < frames; ++i) lines.push_back("    #" + std::to_string(i) + " f");
  return lines;
}

TEST(StackSummary, OfFewLinesIsAllOfThem) {
  const std::vector<std::string> stack = ThreadOf("Python 3.11 thread 12 (python3)", 2);
  EXPECT_EQ(SummaryOf(stack, 12).lines, stack);
  EXPECT_EQ(SummaryOf(stack, 12).left_out, 0u);
  EXPECT_TRUE(SummaryOf({}, 12).lines.empty());
}

TEST(StackSummary, HasTheFirstThreadsWithTheirInnermostFrames) {
  std::vector<std::string> stack = ThreadOf("thread 12", 20);
  for (const std::string& line : ThreadOf("thread 13", 3)) stack.push_back(line);
  const StackSummary summary = SummaryOf(stack, kStackFramesShown + 3);
  EXPECT_EQ(summary.lines.front(), "  thread 12");
  EXPECT_EQ(summary.lines[kStackFramesShown],
            "    #" + std::to_string(kStackFramesShown - 1) + " f");
  EXPECT_EQ(summary.lines[kStackFramesShown + 1], "  thread 13");
  EXPECT_EQ(summary.lines.size(), kStackFramesShown + 3);
  EXPECT_EQ(summary.left_out, stack.size() - summary.lines.size());
}

TEST(StackSummary, ALongLineKeepsBothEndsAndWholeCharacters) {
  const std::string line = "    #0 f<" + std::string(500, 'x') + "> (libtorch.so)";
  const std::string shown = SummaryOf({line}, 1).lines[0];
  EXPECT_EQ(shown.size(), kStackLineShown + 3);
  EXPECT_THAT(shown, StartsWith("    #0 f<xxx"));
  EXPECT_THAT(shown, EndsWith("xxx> (libtorch.so)"));
  std::string wide = "    ";
  for (int i = 0; i < 99; ++i) wide += "\xe2\x82\xac";
  const std::string cut = SummaryOf({wide}, 1).lines[0];
  EXPECT_THAT(cut, StartsWith("    \xe2\x82\xac"));
  EXPECT_THAT(cut, ::testing::HasSubstr("\xe2\x82\xac...\xe2\x82\xac"));
}

}  // namespace
}  // namespace ddprun
