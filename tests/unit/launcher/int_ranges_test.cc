// SPDX-License-Identifier: Apache-2.0
#include "launcher/base/int_ranges.h"

#include <gtest/gtest.h>

namespace ddprun {
namespace {

using Numbers = std::vector<int>;

TEST(IntRangesTest, NumbersAsText) {
  EXPECT_EQ(RangesText({}), "");
  EXPECT_EQ(RangesText({3}), "3");
  EXPECT_EQ(RangesText({0, 1, 2, 4, 6, 7}), "0-2,4,6-7");
}

TEST(IntRangesTest, TextAsNumbers) {
  EXPECT_EQ(ParseRanges(""), Numbers{});
  EXPECT_EQ(ParseRanges("\n"), Numbers{});
  EXPECT_EQ(ParseRanges("0-2,4,6-7\n"), (Numbers{0, 1, 2, 4, 6, 7}));
  EXPECT_EQ(ParseRanges(" 5 , 1"), (Numbers{5, 1}));
}

TEST(IntRangesTest, WhatIsNoList) {
  for (const char* text : {"x", "1-", "-1", "3-2", "1,,2", "1-2-3", "+1", "1.5", "0-99999999"}) {
    EXPECT_EQ(ParseRanges(text), std::nullopt) << text;
  }
}

TEST(IntRangesTest, AShortTextCannotNameBillions) {
  std::string text = "0-999999";
  for (int i = 0; i < 2400; ++i) text += ",0-999999";
  EXPECT_EQ(ParseRanges(text), std::nullopt);
}

}  // namespace
}  // namespace ddprun
