// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/base/printable.h"

#include <gtest/gtest.h>

namespace ddprun {
namespace {

TEST(PrintableTest, NothingReachesATerminalThatCouldMoveItsCursor) {
  EXPECT_EQ(Printable("node-0\tG\xC3\xB6ttingen"), "node-0\tG\xC3\xB6ttingen");
  EXPECT_EQ(Printable("a\r\nddprun: b\x07\x7f"), "a??ddprun: b??");
  EXPECT_EQ(Printable("\x1b[31mred\x1b[0m\x1b[2J"), "red");
  EXPECT_EQ(Printable("\x1b]0;title\x07\x1b["), "?]0;title??[");
  EXPECT_EQ(Printable("\xC2\x9B"
                      "31m"),
            "?31m");
  EXPECT_EQ(Printable(std::string("a\0b", 3)), "a?b");
}

TEST(PrintableTest, LinesStayLines) {
  EXPECT_EQ(PrintableLines("a\x1b[2J\r\n\n\x1b[\nb\n"), "a?\n\n?[\nb\n");
  EXPECT_EQ(PrintableLines(""), "");
}

}  // namespace
}  // namespace ddprun
