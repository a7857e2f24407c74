// SPDX-License-Identifier: Apache-2.0
#include "launcher/output/line_stamp.h"

#include <gtest/gtest.h>

#include <chrono>

namespace ddprun {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

const TimePoint kStart{seconds(1000)};
const absl::Time kWall = absl::FromUnixMillis(1'795'615'392'007);  // 2026-11-25T14:03:12.007 in UTC

TEST(LineStampTest, UtcHasDateAndMilliseconds) {
  LineStamp stamp(LogTime::kUtc, kStart);
  EXPECT_EQ(stamp.Of(kStart, kWall), "2026-11-25T14:03:12.007Z ");
  EXPECT_EQ(stamp.Of(kStart, kWall + absl::Milliseconds(993)), "2026-11-25T14:03:13.000Z ");
}

TEST(LineStampTest, TheLocalTimeIsThatOfThisMachinesZone) {
  LineStamp stamp(LogTime::kLocal, kStart);
  EXPECT_EQ(stamp.Of(kStart, kWall),
            absl::FormatTime("%Y-%m-%dT%H:%M:%E3S ", kWall, absl::LocalTimeZone()));
}

TEST(LineStampTest, RelativeCountsFromTheStart) {
  LineStamp stamp(LogTime::kRelative, kStart);
  EXPECT_EQ(stamp.Of(kStart, kWall), "    0.000 ");
  EXPECT_EQ(stamp.Of(kStart + milliseconds(12'345), kWall), "   12.345 ");
  EXPECT_EQ(stamp.Of(kStart + seconds(86'400), kWall), "86400.000 ");
  EXPECT_EQ(stamp.Of(kStart - seconds(1), kWall), "    0.000 ");
}

TEST(LineStampTest, OffIsNotWanted) {
  EXPECT_FALSE(LineStamp(LogTime::kOff, kStart).wanted());
  EXPECT_TRUE(LineStamp(LogTime::kUtc, kStart).wanted());
}

}  // namespace
}  // namespace ddprun
