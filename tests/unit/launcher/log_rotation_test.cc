// SPDX-License-Identifier: Apache-2.0
#include "launcher/output/log_rotation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace ddprun {
namespace {

using ::testing::ElementsAre;

// What the files would hold if `pieces` came one after the other.
std::vector<std::string> Files(const std::vector<std::string>& pieces, std::uint64_t size_max) {
  std::vector<std::string> files(1);
  for (const std::string& piece : pieces) {
    std::string_view rest = piece;
    while (!rest.empty()) {
      const bool at_line_start = files.back().empty() || files.back().back() == '\n';
      const RotationStep step =
          NextRotationStep(rest, files.back().size(), at_line_start, size_max);
      if (step.rotate_first) files.emplace_back();
      EXPECT_GT(step.bytes, 0u);
      files.back() += rest.substr(0, step.bytes);
      rest.remove_prefix(step.bytes);
    }
  }
  return files;
}

TEST(RotationTest, WithoutALimitThereIsOneFile) {
  EXPECT_THAT(Files({"a\n", "bbbbbbbbbbbb"}, 0), ElementsAre("a\nbbbbbbbbbbbb"));
}

TEST(RotationTest, CutBetweenLines) {
  EXPECT_THAT(Files({"aa\nbb\ncc\ndd\n"}, 6), ElementsAre("aa\nbb\n", "cc\ndd\n"));
  EXPECT_THAT(Files({"aa\nbb\ncc\n"}, 8), ElementsAre("aa\nbb\n", "cc\n"));
}

TEST(RotationTest, HowTheBytesComeMakesNoDifferenceToWholeLines) {
  const std::string text = "aa\nb\ncccc\nd\ne\nffffffffffff\ng\n";
  std::vector<std::string> bytes;
  for (const char c : text) bytes.emplace_back(1, c);
  for (const std::vector<std::string>& pieces : {std::vector<std::string>{text}, bytes}) {
    std::string all;
    for (const std::string& file : Files(pieces, 8)) {
      EXPECT_EQ(file.back(), '\n') << file;
      all += file;
    }
    EXPECT_EQ(all, text);
  }
}

TEST(RotationTest, ALineThatIsTooLongStaysWhole) {
  EXPECT_THAT(Files({"a\n", "123456", "789012", "3\nb\n"}, 4),
              ElementsAre("a\n", "1234567890123\n", "b\n"));
  EXPECT_THAT(Files({"12345"}, 4), ElementsAre("12345"));
}

class LineGapTest : public ::testing::Test {
 protected:
  void Say(std::string_view bytes, bool has_room) { gap_.Admit(bytes, has_room, out_); }
  static std::string Note(int lines) {
    return "ddprun: " + std::to_string(lines) + (lines == 1 ? " line is" : " lines are") +
           " missing here: they could not be written in time\n";
  }
  LineGap gap_;
  std::string out_;
};

TEST_F(LineGapTest, WithRoomNothingChanges) {
  Say("a\nb", true);
  Say("c\n", true);
  gap_.Finish(out_);
  EXPECT_EQ(out_, "a\nbc\n");
  EXPECT_EQ(gap_.lost_lines(), 0u);
}

TEST_F(LineGapTest, WholeLinesAreLeftOutAndCounted) {
  Say("a\n", true);
  Say("b\nc\n", false);
  Say("d\n", true);
  EXPECT_EQ(out_, "a\n" + Note(2) + "d\n");
}

TEST_F(LineGapTest, ALineThatIsCutIsCountedAndItsRestLeftOut) {
  Say("a\nbe", true);
  Say("gin", false);
  Say("ning\nc\n", true);
  EXPECT_EQ(out_, "a\nbe\n" + Note(1) + "c\n");
}

TEST_F(LineGapTest, ALineWhoseBeginningIsLostIsLeftOutAsAWhole) {
  Say("a\nhalf", false);
  Say(" of", true);
  Say(" it\nb\n", true);
  EXPECT_EQ(out_, Note(2) + "b\n");
}

TEST_F(LineGapTest, ASecondGapCountsItsOwnLinesOnly) {
  Say("a", true);
  Say("\nb\nc\n", false);
  Say("d\n", true);
  Say("e\n", false);
  Say("f\n", true);
  EXPECT_EQ(out_, "a\n" + Note(3) + "d\n" + Note(1) + "f\n");
  EXPECT_EQ(gap_.lost_lines(), 4u);
}

TEST_F(LineGapTest, AGapAtTheEndIsSaidToo) {
  Say("a", true);
  Say("b\nc", false);
  gap_.Finish(out_);
  EXPECT_EQ(out_, "a\n" + Note(2));
  EXPECT_EQ(gap_.lost_lines(), 2u);
}

}  // namespace
}  // namespace ddprun
