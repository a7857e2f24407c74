// SPDX-License-Identifier: Apache-2.0
#include "launcher/output/line_splitter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace ddprun {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// "L:" before lines, "P:" before progress segments, in the order in which they came.
class LineSplitterTest : public ::testing::Test {
 protected:
  std::vector<std::string> seen_;
  LineSplitter splitter_{
      {.line = [this](std::string_view line) { seen_.push_back("L:" + std::string(line)); },
       .progress = [this](std::string_view text) { seen_.push_back("P:" + std::string(text)); }},
      8};
};

TEST_F(LineSplitterTest, WholeLinesOnly) {
  splitter_.Append("one\ntw");
  EXPECT_THAT(seen_, ElementsAre("L:one"));
  splitter_.Append("o\n\n");
  EXPECT_THAT(seen_, ElementsAre("L:one", "L:two", "L:"));
}

TEST_F(LineSplitterTest, TheEndIsALineToo) {
  splitter_.Append("last");
  EXPECT_THAT(seen_, IsEmpty());
  splitter_.Flush();
  splitter_.Flush();
  EXPECT_THAT(seen_, ElementsAre("L:last"));
}

TEST_F(LineSplitterTest, ReturnEndsAProgressSegment) {
  splitter_.Append("10%\r20%\rdone\n");
  EXPECT_THAT(seen_, ElementsAre("P:10%", "P:20%", "L:done"));
}

TEST_F(LineSplitterTest, ReturnFirstAsProgressBarsOfPythonDo) {
  splitter_.Append("\r10%");
  splitter_.Append("\r20%");
  splitter_.Append("\n");
  EXPECT_THAT(seen_, ElementsAre("P:10%", "L:20%"));
}

TEST_F(LineSplitterTest, ReturnAndNewlineAreOneLineEndAlsoWhenTheyComeApart) {
  splitter_.Append("a\r\nb\r");
  splitter_.Append("\nc\n");
  EXPECT_THAT(seen_, ElementsAre("P:a", "L:a", "P:b", "L:b", "L:c"));
}

TEST_F(LineSplitterTest, ProgressAtTheEndIsNoLine) {
  splitter_.Append("90%\r");
  splitter_.Flush();
  EXPECT_THAT(seen_, ElementsAre("P:90%"));
}

TEST_F(LineSplitterTest, LongLinesComeInPieces) {
  splitter_.Append("123456789012345678\n12345678\n");
  EXPECT_THAT(seen_, ElementsAre("L:12345678", "L:90123456", "L:78", "L:12345678"));
}

TEST_F(LineSplitterTest, ByteByByteIsTheSame) {
  for (const char c : std::string("ab\nc\rd\r\n1234567890\nx")) splitter_.Append({&c, 1});
  splitter_.Flush();
  EXPECT_THAT(seen_, ElementsAre("L:ab", "P:c", "P:d", "L:d", "L:12345678", "L:90", "L:x"));
}

}  // namespace
}  // namespace ddprun
