// SPDX-License-Identifier: Apache-2.0
#include "launcher/output/line_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>

#include "launcher/base/int_ranges.h"

#include "absl/strings/str_cat.h"

namespace ddprun {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr LineFolder::Limits kLimits{
    .window = milliseconds(200), .bytes_max = 1u << 20, .lines_max = 1000};

// "0-1:text" of each, "e" before those of stderr.
std::vector<std::string> Texts(const LineFolder::Groups& groups) {
  std::vector<std::string> texts;
  for (const LineFolder::Group& group : groups) {
    texts.push_back(absl::StrCat(group.stream == OutputStream::kErr ? "e" : "",
                                 RangesText(group.workers), ":", group.text));
  }
  return texts;
}

class LineFolderTest : public ::testing::Test {
 protected:
  std::vector<std::string> Write(int worker, const std::string& text,
                                 OutputStream stream = OutputStream::kOut) {
    return Texts(folder_.Add(worker, stream, text, now_));
  }
  void Later(int ms) { now_ += milliseconds(ms); }

  LineFolder folder_{kLimits};
  TimePoint now_{std::chrono::seconds(100)};
};

TEST_F(LineFolderTest, ASingleWorkerIsNeverHeldBack) {
  folder_.Start(1);
  EXPECT_THAT(Write(0, "a"), ElementsAre("0:a"));
  EXPECT_THAT(Write(0, "a"), ElementsAre("0:a"));
  EXPECT_EQ(folder_.NextDeadline(), std::nullopt);
}

TEST_F(LineFolderTest, EqualLinesLeaveAsOneAsSoonAsAllHaveSaidThem) {
  folder_.Start(3);
  EXPECT_THAT(Write(2, "a"), IsEmpty());
  EXPECT_THAT(Write(0, "a"), IsEmpty());
  EXPECT_THAT(Write(1, "a"), ElementsAre("0-2:a"));
  EXPECT_EQ(folder_.NextDeadline(), std::nullopt);
}

TEST_F(LineFolderTest, ALineWaitsNoLongerThanTheWindow) {
  folder_.Start(3);
  Write(0, "a");
  Later(50);
  Write(1, "a");
  EXPECT_EQ(folder_.NextDeadline(), now_ + milliseconds(150));
  Later(149);
  EXPECT_THAT(folder_.Expire(now_), IsEmpty());
  Later(1);
  EXPECT_THAT(Texts(folder_.Expire(now_)), ElementsAre("0-1:a"));
}

TEST_F(LineFolderTest, WhoSaysSomethingElseHasPassed) {
  folder_.Start(2);
  EXPECT_THAT(Write(0, "a"), IsEmpty());
  // Worker 1 can no longer join "a", and worker 0 may still join "b".
  EXPECT_THAT(Write(1, "b"), ElementsAre("0:a"));
  EXPECT_THAT(Write(0, "b"), ElementsAre("0-1:b"));
}

TEST_F(LineFolderTest, ALaterLineNeverOvertakesAnEarlierOne) {
  folder_.Start(3);
  Write(0, "x");
  Write(0, "y");
  Write(1, "y");
  // "x" of worker 1 comes after its "y": it may not join worker 0's.
  Write(1, "x");
  EXPECT_THAT(Texts(folder_.Flush()), ElementsAre("0:x", "0-1:y", "1:x"));
}

TEST_F(LineFolderTest, TheSameLineTwiceIsSaidTwice) {
  folder_.Start(2);
  EXPECT_THAT(Write(0, ""), IsEmpty());
  EXPECT_THAT(Write(0, ""), IsEmpty());
  EXPECT_THAT(Write(1, ""), ElementsAre("0-1:"));
  EXPECT_THAT(Write(1, ""), ElementsAre("0-1:"));
}

TEST_F(LineFolderTest, StreamsAreNotMixedAndKeepTheirOrder) {
  folder_.Start(2);
  EXPECT_THAT(Write(0, "a"), IsEmpty());
  EXPECT_THAT(Write(0, "a", OutputStream::kErr), IsEmpty());
  EXPECT_THAT(Write(1, "a", OutputStream::kErr), ElementsAre("0:a", "e0-1:a"));
}

TEST_F(LineFolderTest, NobodyWaitsForTheDead) {
  folder_.Start(3);
  Write(0, "a");
  Write(1, "a");
  EXPECT_THAT(Texts(folder_.EndWorker(2, now_)), ElementsAre("0-1:a"));
  Write(0, "b");
  EXPECT_THAT(Texts(folder_.EndWorker(1, now_)), ElementsAre("0:b"));
  EXPECT_THAT(Write(0, "c"), ElementsAre("0:c"));
  EXPECT_THAT(Write(1, "a grandchild's"), IsEmpty());
  EXPECT_THAT(Texts(folder_.Flush()), ElementsAre("1:a grandchild's"));
}

TEST_F(LineFolderTest, WaitingTextIsLimited) {
  folder_.Start(2);
  std::size_t left = 0;
  for (int i = 0; i < 2000; ++i) left += Write(0, absl::StrCat(i)).size();
  EXPECT_EQ(left, 1000u);
  EXPECT_THAT(Write(0, std::string(1u << 20, 'x')).size(), 1001u);
}

// The limit is on what waits, not on what has ever waited.
TEST_F(LineFolderTest, EqualLinesAreFoldedHoweverMuchWasSaidBefore) {
  folder_.Start(2);
  const std::string text(10'000, 'x');
  for (std::size_t said = 0; said < 4 * kLimits.bytes_max; said += text.size()) {
    ASSERT_THAT(Write(0, text), IsEmpty()) << "after " << said << " bytes";
    ASSERT_THAT(Write(1, text), ElementsAre("0-1:" + text)) << "after " << said << " bytes";
  }
}

TEST_F(LineFolderTest, ANewRoundBeginsWithNothingWaiting) {
  const std::string text(10'000, 'x');
  for (std::size_t said = 0; said < 4 * kLimits.bytes_max; said += text.size()) {
    folder_.Start(2);
    ASSERT_THAT(Write(0, text), IsEmpty()) << "after " << said << " bytes";
    ASSERT_NE(folder_.NextDeadline(), std::nullopt);
  }
  folder_.Start(2);
  EXPECT_EQ(folder_.NextDeadline(), std::nullopt);
  EXPECT_THAT(Write(1, text), IsEmpty()) << "a line of the round before was joined";
}

// Whatever is said, every worker's lines come out once and in its order, and within the window.
TEST_F(LineFolderTest, NoLineIsLostDoubledOrMovedByChance) {
  for (unsigned seed = 0; seed < 200; ++seed) {
    std::minstd_rand random(seed);
    const int count = 1 + static_cast<int>(random() % 5);
    LineFolder folder(kLimits);
    folder.Start(count);
    std::map<int, std::vector<std::string>> said;
    std::map<int, std::vector<std::string>> shown;
    const auto show = [&](const LineFolder::Groups& groups) {
      for (const LineFolder::Group& group : groups) {
        for (const int worker : group.workers) shown[worker].push_back(group.text);
      }
    };
    for (int i = 0; i < 300; ++i) {
      const int worker = static_cast<int>(random() % static_cast<unsigned>(count));
      if (random() % 50 == 0) {
        show(folder.EndWorker(worker, now_));
      } else {
        const std::string text(1, static_cast<char>('a' + random() % 3));
        said[worker].push_back(text);
        show(folder.Add(worker, OutputStream::kOut, text, now_));
      }
      now_ += milliseconds(random() % 40);
      show(folder.Expire(now_));
      const auto deadline = folder.NextDeadline();
      ASSERT_TRUE(!deadline.has_value() || *deadline > now_);
    }
    show(folder.Flush());
    ASSERT_EQ(said, shown) << "seed " << seed;
  }
}

}  // namespace
}  // namespace ddprun
