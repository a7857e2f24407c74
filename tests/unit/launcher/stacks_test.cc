// SPDX-License-Identifier: Apache-2.0
#include "launcher/hang/stacks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ddprun {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(StacksTest, EachProcessHasItsLines) {
  const Stacks stacks = ParseStacks(
      "=== process 12\n  thread 12 (a), state S\n    #0 f (libc.so.6)\n=== process 13\n=== process "
      "14\n  thread");
  EXPECT_THAT(stacks.at(12), ElementsAre("  thread 12 (a), state S", "    #0 f (libc.so.6)"));
  EXPECT_THAT(stacks.at(13), IsEmpty());
  EXPECT_THAT(stacks.at(14), ElementsAre("  thread")) << "what was cut is kept";
}

TEST(StacksTest, ControlCharactersInNamesAreReplaced) {
  EXPECT_THAT(ParseStacks("=== process 12\n    #0 \x1b[2Jf at a\x07.py:1\n").at(12),
              ElementsAre("    #0 f at a?.py:1"));
}

TEST(StacksTest, WordsOfNobodyAreLeftOut) {
  EXPECT_THAT(ParseStacks("hello\n=== process x\n  thread 1\n"), IsEmpty());
}

}  // namespace
}  // namespace ddprun
