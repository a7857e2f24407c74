// SPDX-License-Identifier: Apache-2.0
#include "worker/train/plot/axis.h"

#include <gtest/gtest.h>

namespace ddprun {
namespace {

std::vector<std::string> Texts(const Axis& axis) {
  std::vector<std::string> texts;
  for (const double tick : axis.ticks) texts.push_back(TickText(tick, axis.digits));
  return texts;
}

using Strings = std::vector<std::string>;

TEST(Axis, TicksAreRoundNumbersWithinTheRange) {
  EXPECT_EQ(Texts(MakeAxis(0, 990, 7, false)),
            (Strings{"0", "100", "200", "300", "400", "500", "600", "700", "800", "900"}));
  EXPECT_EQ(Texts(MakeAxis(0, 46900, 5, false)), (Strings{"0", "10k", "20k", "30k", "40k"}));
  EXPECT_EQ(Texts(MakeAxis(0, 3.1e6, 3, false)), (Strings{"0", "1M", "2M", "3M"}));
}

TEST(Axis, CanBeWidenedToTicks) {
  const Axis axis = MakeAxis(0.02, 2.31, 6, true);
  EXPECT_EQ(axis.least, 0);
  EXPECT_DOUBLE_EQ(axis.most, 2.5);
  EXPECT_EQ(Texts(axis), (Strings{"0.0", "0.5", "1.0", "1.5", "2.0", "2.5"}));
  EXPECT_EQ(Texts(MakeAxis(-0.03, 0.031, 4, true)),
            (Strings{"-0.04", "-0.02", "0.00", "0.02", "0.04"}));
}

TEST(Axis, TickAtTheEndIsNotLostToRounding) {
  EXPECT_EQ(Texts(MakeAxis(0, 0.3, 3, false)), (Strings{"0.0", "0.1", "0.2", "0.3"}));
}

TEST(Axis, OfOneValueHasRoomOnBothSides) {
  const Axis axis = MakeAxis(7, 7, 5, true);
  EXPECT_LT(axis.least, 7);
  EXPECT_GT(axis.most, 7);
  EXPECT_GE(axis.ticks.size(), 2);
}

}  // namespace
}  // namespace ddprun
