// SPDX-License-Identifier: Apache-2.0
#include "launcher/ctl/logs_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ddprun {
namespace {

using ::testing::HasSubstr;

constexpr std::size_t kBytesMax = 1000;

WorkerLines Said(int node, std::uint64_t round, const std::string& text, bool tail_end = false) {
  WorkerLines said;
  said.node = node == 0 ? "a" : "b";
  said.node_rank = node;
  said.lines.tail_end = tail_end;
  if (!text.empty()) {
    said.lines.lines.push_back({node, round, false, "[" + std::to_string(node) + "] ", text});
  }
  return said;
}

TEST(LogsTextTest, WhatWasSaidBeforeIsInTheOrderOfRoundsAndNodes) {
  LogsText text(/*follow=*/false, kBytesMax);
  EXPECT_EQ(text.On(WatchBegun{"job", {"a", "b"}, {}}), "");
  EXPECT_EQ(text.On(Said(1, 1, "b1")), "");
  EXPECT_EQ(text.On(Said(1, 2, "b2", true)), "");
  EXPECT_EQ(text.On(Said(0, 1, "a1")), "");
  EXPECT_EQ(text.On(Said(0, 2, "a2", true)), "");
  EXPECT_EQ(text.On(TailsEnd{}), "[0] a1\n[1] b1\nddpctl: of round 2:\n[0] a2\n[1] b2\n");
}

TEST(LogsTextTest, WhatIsSaidMeanwhileComesAfterIt) {
  LogsText text(/*follow=*/true, kBytesMax);
  text.On(WatchBegun{"job", {"a", "b"}, {}});
  text.On(Said(1, 1, "old", true));
  EXPECT_EQ(text.On(Said(1, 1, "new")), "");
  EXPECT_EQ(text.On(RunWords{"round 2 begins"}), "");
  text.On(Said(0, 1, "old", true));
  EXPECT_EQ(text.On(TailsEnd{}), "[0] old\n[1] old\n[1] new\nddpctl: round 2 begins\n");
  EXPECT_EQ(text.On(Said(1, 2, "now")), "[1] now\n");
}

TEST(LogsTextTest, AMemberForgesNoLineAndMovesNoCursor) {
  const auto shown = [](bool terminal, const std::string& prefix, const std::string& words) {
    LogsText text(/*follow=*/true, kBytesMax, terminal);
    text.On(TailsEnd{});
    WorkerLines said;
    said.lines.lines.push_back({0, 1, false, prefix, words});
    return text.On(said);
  };
  EXPECT_EQ(shown(true, "[0] ", "a\n[1] forged\x1b[2J\x1b]0;title\x07"),
            "[0] a?[1] forged?]0;title?\n");
  EXPECT_EQ(shown(true, "[0]\x1b[1A\n[1] ", "text"), "[0]?[1] text\n");
  EXPECT_EQ(shown(true, "[0] ", "\r 10%\r 20%\r"), "[0]  20%\n");
  // A program that reads gets the bytes, in lines that are the run's own.
  EXPECT_EQ(shown(false, "[0]\n[1] ", "\x1b[31mred\nforged"), "[0]?[1] \x1b[31mred?forged\n");
}

TEST(LogsTextTest, WhatIsLeftOutIsSaidInItsPlace) {
  LogsText text(/*follow=*/true, kBytesMax);
  text.On(TailsEnd{});
  WorkerLines said = Said(0, 1, "after");
  said.lines.left_out = 312;
  EXPECT_EQ(text.On(said), "... 312 lines of node a left out\n[0] after\n");
  WorkerLines nothing_more;
  nothing_more.node = "a";
  nothing_more.lines.left_out = 1;
  EXPECT_EQ(text.On(nothing_more), "... 1 line of node a left out\n");
}

TEST(LogsTextTest, NodesThatCannotBeAskedAndThoseThatDoNotAnswer) {
  LogsText text(/*follow=*/false, kBytesMax);
  EXPECT_THAT(text.On(WatchBegun{"job", {"a", "b"}, {"c"}}),
              HasSubstr("node c has no connection to the service now; lines from there are not"));
  text.On(Said(0, 1, "hello", true));
  const std::string rest = text.StopWaiting();
  EXPECT_THAT(rest, HasSubstr("[0] hello\n"));
  EXPECT_THAT(rest, HasSubstr("ddpctl: nothing came in time from b;"));
  EXPECT_EQ(text.StopWaiting(), "");
}

TEST(LogsTextTest, TooMuchIsNotHeld) {
  LogsText text(/*follow=*/false, 10);
  text.On(WatchBegun{"job", {"a"}, {}});
  EXPECT_EQ(text.On(Said(0, 1, "a long line")), "[0] a long line\n");
  EXPECT_FALSE(text.waiting());
}

TEST(LogsTextTest, HowARunEnded) {
  EXPECT_EQ(EndSentence("job", RunOver{}), "run job is over: its last node has left");
  Verdict verdict;
  verdict.success = true;
  EXPECT_EQ(EndSentence("job", RunOver{verdict}), "run job ended: all workers succeeded");
  verdict.success = false;
  verdict.exit_code = 7;
  verdict.cause = Failure{.rank = 3, .host = "b", .exit_code = 7};
  EXPECT_THAT(EndSentence("job", RunOver{verdict}),
              HasSubstr("run job ended with exit code 7: rank 3"));
}

}  // namespace
}  // namespace ddprun
