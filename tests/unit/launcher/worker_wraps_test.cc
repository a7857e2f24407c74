// SPDX-License-Identifier: Apache-2.0
#include "launcher/options/worker_wraps.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/launcher/options_fixture.h"

namespace ddprun {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<std::string> Words(const std::string& text) {
  return SplitWords(text).value_or(std::vector<std::string>{"no end"});
}

TEST(SplitWordsTest, QuotesAndBackslashesAreAShells) {
  EXPECT_THAT(Words("gdb  --args "), ElementsAre("gdb", "--args"));
  EXPECT_THAT(Words("sh -c 'exec \"$@\"' sh"), ElementsAre("sh", "-c", "exec \"$@\"", "sh"));
  EXPECT_THAT(Words(R"(a"b c"'d e'f)"), ElementsAre("ab cd ef"));
  EXPECT_THAT(Words(R"("a\"b\\c\d" e\ f)"), ElementsAre(R"(a"b\c\d)", "e f"));
  EXPECT_THAT(Words("'' \"\""), ElementsAre("", ""));
  EXPECT_THAT(Words(" "), IsEmpty());
  EXPECT_THAT(Words("$HOME `x` * ~"), ElementsAre("$HOME", "`x`", "*", "~"));
}

TEST(SplitWordsTest, AQuoteNeedsAnEnd) {
  for (const char* text : {"'a", "\"a", "\"a\\\"", "a\\"})
    EXPECT_EQ(SplitWords(text), std::nullopt) << text;
}

TEST(WorkerWrapsTest, RanksAndCommand) {
  const auto wrap = ParseWrap("8,0-2,1:perf record -o a:b");
  ASSERT_TRUE(wrap.ok()) << wrap.status();
  EXPECT_THAT(wrap->ranks, ElementsAre(0, 1, 2, 8));
  EXPECT_THAT(wrap->command, ElementsAre("perf", "record", "-o", "a:b"));
  EXPECT_THAT(ParseWrap("all:time")->ranks, IsEmpty());
}

TEST(WorkerWrapsTest, EachRankHasItsOwn) {
  const std::vector<WorkerWrap> wraps = ParsedLine("--wrap 0:gdb --wrap 2-3:time").wraps;
  EXPECT_EQ(FindWrap(wraps, 0)->command, std::vector<std::string>{"gdb"});
  EXPECT_EQ(FindWrap(wraps, 1), nullptr);
  EXPECT_EQ(FindWrap(wraps, 3)->command, std::vector<std::string>{"time"});
  EXPECT_EQ(HighestWrapped(wraps), 3);
  const std::vector<WorkerWrap> all = ParsedLine("--wrap all:time").wraps;
  EXPECT_NE(FindWrap(all, 77), nullptr);
  EXPECT_EQ(HighestWrapped(all), -1);
}

TEST(WorkerWrapsTest, RanksInTheCommand) {
  const WorkerWrap wrap{{}, {"nsys", "-o", "out.%r", "${rank}-${local_rank}", "%q{RANK} %p $r"}};
  EXPECT_THAT(WrapCommand(wrap, 9, 1), ElementsAre("nsys", "-o", "out.9", "9-1", "%q{RANK} %p $r"));
}

TEST(WorkerWrapsTest, WhatAPersonGetsWrong) {
  for (const char* flags :
       {"--wrap gdb", "--wrap :gdb", "--wrap 0:", "--wrap a:gdb", "--wrap 3-1:gdb"})
    EXPECT_THAT(LineError(flags), HasSubstr("' is not RANKS:COMMAND, as in 0:\"gdb --args\""))
        << flags;
  EXPECT_EQ(LineError("--wrap 0:'gdb"), "--wrap '0:'gdb' has a quote without an end; close it");
  EXPECT_THAT(LineError("--wrap 0-3:time --wrap 2:gdb"),
              HasSubstr("--wrap gives rank 2 two commands; write both into one"));
  EXPECT_THAT(LineError("--wrap 5:time --wrap all:gdb"), HasSubstr("gives rank 5 two"));
}

TEST(WorkerWrapsTest, TheNodesOfAHeadGetThemAll) {
  EXPECT_THAT(ParsedLine("-H a:2 --wrap 0:gdb --wrap 1:time").hosts.forwarded,
              ElementsAre("--wrap=0:gdb\n1:time"));
  EXPECT_EQ(ParsedLine("--wrap=0:gdb\n1:time").wraps.size(), 2u);
}

TEST(WorkerStdinTest, OneRankNoneOrAll) {
  EXPECT_EQ(ParsedLine("").worker_stdin.to, WorkerStdin::To::kShared);
  EXPECT_EQ(ParsedLine("--stdin shared").worker_stdin.to, WorkerStdin::To::kShared);
  EXPECT_EQ(ParsedLine("--stdin none -H a").worker_stdin.to, WorkerStdin::To::kNone);
  const WorkerStdin one = ParsedLine("--stdin 3").worker_stdin;
  EXPECT_EQ(one.to, WorkerStdin::To::kRank);
  EXPECT_EQ(one.rank, 3);
  for (const char* flags : {"--stdin all", "--stdin -1", "--stdin 1-2"})
    EXPECT_THAT(LineError(flags), HasSubstr("' is not a rank, none or shared")) << flags;
  EXPECT_THAT(ParsedLine("--stdin 0 -H a").hosts.forwarded, ElementsAre("--stdin=0"));
}

}  // namespace
}  // namespace ddprun
