// SPDX-License-Identifier: Apache-2.0
#include "launcher/output/log_feed.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "rendezvous/base/limits.h"

namespace ddprun {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr LogFeed::Limits kLimits = {.tail_bytes = 4096,
                                     .line_bytes = 100,
                                     .pending_bytes = 1000,
                                     .window_bytes = 300,
                                     .batch_bytes = 200};

class LogFeedTest : public ::testing::Test {
 protected:
  void SetUp() override { feed_.StartRound(1, 2); }

  void Say(int worker, std::string_view line, OutputStream stream = OutputStream::kOut) {
    feed_.Add(worker, 4 + worker, stream, worker == 0 ? "[4] " : "[5] ", line);
  }
  static LogWatch Watch(int lines, bool follow) {
    LogWatch watch;
    watch.id = 1;
    watch.lines = lines;
    watch.follow = follow;
    return watch;
  }
  // What there is to say, as one message.
  static LogLines Joined(const std::vector<LogLines>& messages) {
    LogLines all;
    for (const LogLines& message : messages) {
      all.number = message.number;
      all.left_out += message.left_out;
      all.tail_end = all.tail_end || message.tail_end;
      all.lines.insert(all.lines.end(), message.lines.begin(), message.lines.end());
    }
    return all;
  }
  static std::vector<std::string> Texts(const LogLines& lines) {
    std::vector<std::string> texts;
    for (const LogLine& line : lines.lines) texts.push_back(line.prefix + line.text);
    return texts;
  }
  LogLines Take(bool all = false) { return Joined(feed_.Take(all)); }
  // As a reader who takes everything at once.
  LogLines TakeAndAcknowledge() {
    std::vector<LogLines> messages;
    while (true) {
      std::vector<LogLines> some = feed_.Take(false);
      if (some.empty()) return Joined(messages);
      feed_.Taken({1, some.back().number});
      messages.insert(messages.end(), some.begin(), some.end());
    }
  }

  LogFeed feed_{kLimits};
};

TEST_F(LogFeedTest, TheLastLinesOfEachWorkerInTheirOrder) {
  for (int i = 0; i < 3; ++i) Say(0, "a" + std::to_string(i));
  Say(1, "b0");
  Say(0, "a3");
  feed_.SetWatches({Watch(2, false)});
  const LogLines said = Take();
  EXPECT_THAT(Texts(said), ElementsAre("[4] a2", "[5] b0", "[4] a3"));
  EXPECT_TRUE(said.tail_end);
  // It was asked for once.
  Say(0, "a4");
  EXPECT_THAT(feed_.Take(false), IsEmpty());
}

TEST_F(LogFeedTest, NothingIsSaidWhileNobodyListens) {
  Say(0, "a0");
  EXPECT_THAT(feed_.Take(true), IsEmpty());
  feed_.SetWatches({Watch(0, true)});
  EXPECT_THAT(Texts(Take()), IsEmpty());
  Say(0, "a1");
  EXPECT_THAT(Texts(Take()), ElementsAre("[4] a1"));
  feed_.SetWatches({});
  Say(0, "a2");
  EXPECT_THAT(feed_.Take(true), IsEmpty());
}

TEST_F(LogFeedTest, OnlyWhatIsWanted) {
  LogWatch watch = Watch(10, true);
  watch.ranks = {{5, 9}};
  watch.without_stdout = true;
  Say(0, "a", OutputStream::kErr);
  Say(1, "b", OutputStream::kErr);
  Say(1, "c");
  feed_.SetWatches({watch});
  EXPECT_THAT(Texts(Take()), ElementsAre("[5] b"));
  Say(1, "d", OutputStream::kErr);
  Say(1, "e");
  EXPECT_THAT(Texts(Take()), ElementsAre("[5] d"));
}

TEST_F(LogFeedTest, TheTailIsBoundedAndKeepsWhatWasSaidLast) {
  for (int i = 0; i < 1000; ++i) Say(0, "line " + std::to_string(i));
  feed_.SetWatches({Watch(1000, false)});
  const LogLines said = TakeAndAcknowledge();
  EXPECT_GT(said.lines.size(), 20u);
  EXPECT_LT(said.lines.size(), 150u);
  EXPECT_EQ(said.lines.back().text, "line 999");
  for (std::size_t i = 0; i < said.lines.size(); ++i) {
    EXPECT_EQ(said.lines[i].text, "line " + std::to_string(1000 - said.lines.size() + i));
  }
}

TEST_F(LogFeedTest, TheLastLinesOfARoundAreKeptWhateverTheirSizeAndCut) {
  Say(1, "an earlier round's");
  feed_.StartRound(2, 2);
  EXPECT_THAT(feed_.LastLinesOf(1), IsEmpty());
  for (std::size_t i = 0; i < kLastLinesMax + 3; ++i)
    Say(1, std::to_string(i) + std::string(kLimits.tail_bytes, 'x'));
  Say(0, "another worker's");
  const std::vector<std::string> last = feed_.LastLinesOf(1);
  ASSERT_THAT(last, SizeIs(kLastLinesMax));
  EXPECT_EQ(last.front().substr(0, 2), "3x");
}

TEST_F(LogFeedTest, ALastLineIsCut) {
  LogFeed feed({.tail_bytes = 1u << 20, .line_bytes = 1u << 20});
  feed.StartRound(1, 1);
  feed.Add(0, 0, OutputStream::kOut, "", std::string(kLastLineBytesMax + 1, 'x'));
  EXPECT_EQ(feed.LastLinesOf(0).back().size(), kLastLineBytesMax);
}

TEST_F(LogFeedTest, ALongLineIsCutAndSaysSo) {
  Say(0, std::string(150, 'x'));
  feed_.SetWatches({Watch(1, false)});
  EXPECT_EQ(Take().lines[0].text,
            std::string(100, 'x') + "... (50 more bytes of this line are not shown)");
}

TEST_F(LogFeedTest, AnyBytesComeThrough) {
  const std::string bytes("\xff\x00\xc3 \x1b[31m", 9);
  Say(0, bytes);
  feed_.SetWatches({Watch(1, false)});
  EXPECT_EQ(Take().lines[0].text, bytes);
}

// They become part of the verdict, on this node's terminal too.
TEST_F(LogFeedTest, TheLastLinesHaveNoControlCharacters) {
  Say(1, "\x1b[31mred\x1b[0m\x1b]0;title\x07");
  EXPECT_THAT(feed_.LastLinesOf(1), ElementsAre("red?]0;title?"));
}

TEST_F(LogFeedTest, ASlowReaderLosesLinesAndIsToldHowMany) {
  feed_.SetWatches({Watch(0, true)});
  Take();
  std::uint64_t said = 0;
  std::vector<LogLines> messages;
  for (int i = 0; i < 100; ++i) {
    Say(0, "line " + std::to_string(i));
    for (LogLines& message : feed_.Take(false)) messages.push_back(std::move(message));
    ++said;
  }
  // No more than a window is under way.
  EXPECT_LT(Joined(messages).lines.size(), 12u);
  const std::uint64_t before = Joined(messages).lines.size();
  feed_.Taken({1, messages.back().number});
  const LogLines rest = TakeAndAcknowledge();
  EXPECT_GT(rest.left_out, 0u);
  EXPECT_EQ(before + rest.lines.size() + rest.left_out, said);
  // And the number stands where they are missing.
  Say(0, "after");
  EXPECT_THAT(Texts(Take()), ElementsAre("[4] after"));
}

TEST_F(LogFeedTest, AtARoundsEndAllThatWaitsIsSaid) {
  feed_.SetWatches({Watch(0, true)});
  for (int i = 0; i < 15; ++i) Say(0, "line " + std::to_string(i));
  EXPECT_LT(Take().lines.size(), 15u);
  EXPECT_EQ(Take(/*all=*/true).lines.back().text, "line 14");
}

TEST_F(LogFeedTest, WhatABrokenConnectionLostIsSaidAgain) {
  feed_.SetWatches({Watch(0, true)});
  Take();
  Say(0, "heard");
  const std::uint64_t heard = Take().number;
  Say(0, "lost");
  const std::uint64_t lost = Take().number;
  feed_.Pause();
  Say(0, "meanwhile");
  EXPECT_THAT(feed_.Take(false), IsEmpty());
  LogWatch again = Watch(0, true);
  again.resumed = true;
  again.received = heard;
  feed_.SetWatches({again});
  const std::vector<LogLines> said = feed_.Take(false);
  EXPECT_THAT(Texts(Joined(said)), ElementsAre("[4] lost", "[4] meanwhile"));
  EXPECT_EQ(said[0].number, lost) << "the service may have it after all";
  EXPECT_THAT(feed_.Take(false), IsEmpty());
}

// The report of the workers' ends waits for the next connection, and their last words before it.
TEST_F(LogFeedTest, ARoundThatEndsWithoutAConnection) {
  feed_.SetWatches({Watch(0, true)});
  const std::uint64_t heard = Take().number;
  Say(0, "lost");
  Take();
  feed_.Pause();
  Say(0, "last");
  const LogLines said = Take(/*all=*/true);
  EXPECT_THAT(Texts(said), ElementsAre("[4] lost", "[4] last"));
  EXPECT_THAT(feed_.Take(true), IsEmpty());
  // That connection was lost as well.
  feed_.Pause();
  LogWatch again = Watch(0, true);
  again.resumed = true;
  again.received = heard;
  feed_.SetWatches({again});
  EXPECT_THAT(Texts(Take()), ElementsAre("[4] lost", "[4] last"));
}

TEST_F(LogFeedTest, OneWhoIsNamedNoMoreAfterABreakIsForgotten) {
  feed_.SetWatches({Watch(0, true)});
  Take();
  feed_.Pause();
  feed_.StartRound(2, 2);
  // It has what was said before: of a watch that went on elsewhere nothing is said twice.
  Say(0, "old");
  LogWatch again = Watch(10, true);
  again.resumed = true;
  feed_.SetWatches({again});
  EXPECT_THAT(Texts(Take()), IsEmpty());
}

TEST_F(LogFeedTest, TheTailReachesBackOverARestart) {
  Say(0, "first");
  feed_.StartRound(2, 2);
  Say(0, "second");
  feed_.SetWatches({Watch(10, false)});
  const LogLines said = Take();
  ASSERT_THAT(said.lines, SizeIs(2));
  EXPECT_EQ(said.lines[0].round, 1u);
  EXPECT_EQ(said.lines[1].round, 2u);
}

}  // namespace
}  // namespace ddprun
