// SPDX-License-Identifier: Apache-2.0
#include "launcher/options/run_flags.h"

#include <gmock/gmock.h>

#include "tests/unit/launcher/options_fixture.h"

namespace ddprun {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;
using ::testing::HasSubstr;

TEST(HangOptionsTest, OnlyWhoTellsOfProgressIsWatchedByDefault) {
  const HangOptions options = ParsedLine("").hangs;
  EXPECT_EQ(options.hang_timeout, minutes(30));
  EXPECT_EQ(options.init_timeout, milliseconds(0));
  EXPECT_EQ(options.heartbeat_timeout, milliseconds(0));
  EXPECT_EQ(options.on_hang, OnHang::kKill);
}

TEST(HangOptionsTest, EachCanBeSetAndTurnedOff) {
  const HangOptions options =
      ParsedLine("--hang-timeout 0 --init-timeout 600 --heartbeat_timeout=1.5 --on-hang report")
          .hangs;
  EXPECT_EQ(options.hang_timeout, milliseconds(0));
  EXPECT_EQ(options.init_timeout, minutes(10));
  EXPECT_EQ(options.heartbeat_timeout, milliseconds(1'500));
  EXPECT_EQ(options.on_hang, OnHang::kReport);
  EXPECT_EQ(ParsedLine("", {{"PET_HANG_TIMEOUT", "7"}}).hangs.hang_timeout, seconds(7));
}

TEST(HangOptionsTest, StragglersStayUnlessTheyAreToLeave) {
  EXPECT_FALSE(ParsedLine("").hangs.evict_stragglers);
  EXPECT_TRUE(ParsedLine("--evict-stragglers").hangs.evict_stragglers);
}

TEST(HangOptionsTest, WhatIsNoTimeIsRefused) {
  EXPECT_THAT(LineError("--hang-timeout -1"), HasSubstr("--hang-timeout '-1' is not a number"));
  EXPECT_THAT(LineError("--heartbeat-timeout soon"), HasSubstr("'soon'"));
  EXPECT_THAT(LineError("--on-hang ignore"), HasSubstr("is not kill or report"));
}

}  // namespace
}  // namespace ddprun
