// SPDX-License-Identifier: Apache-2.0
// What node 0's console shows of the nodes that its service has refused.
#include "launcher/node/refusals.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "launcher/base/limits.h"

namespace ddprun {
namespace {

const TimePoint kBegin{std::chrono::hours(1)};

class RefusalsTest : public ::testing::Test {
 protected:
  RefusalsTest() {
    refusals_.Begin(nullptr, [this] { ++wakes_; });
  }
  void Refuse(const std::string& words) {
    RunNotice note;
    note.kind = NoticeKind::kNodeRefused;
    note.words = words;
    refusals_.OnNotice("run", note);
  }

  Refusals refusals_;
  int wakes_ = 0;
};

TEST_F(RefusalsTest, TheFirstIsShownAtOnce) {
  EXPECT_EQ(refusals_.NextDeadline(), std::nullopt);
  Refuse("node b was started with --nnodes 3");
  EXPECT_EQ(wakes_, 1);
  EXPECT_EQ(refusals_.TakeLine(kBegin), "refused a node: node b was started with --nnodes 3");
  EXPECT_EQ(refusals_.TakeLine(kBegin), std::nullopt);
  EXPECT_EQ(refusals_.NextDeadline(), std::nullopt);
}

// A peer that is refused again and again does not fill the console.
TEST_F(RefusalsTest, ManyAreOneLineInAWhile) {
  Refuse("first");
  ASSERT_TRUE(refusals_.TakeLine(kBegin));
  for (int i = 0; i < 1000; ++i) {
    Refuse(absl::StrCat("number ", i));
    EXPECT_EQ(refusals_.TakeLine(kBegin + kRefusalInterval / 2), std::nullopt);
  }
  EXPECT_EQ(refusals_.NextDeadline(), kBegin + kRefusalInterval);
  EXPECT_EQ(refusals_.TakeLine(kBegin + kRefusalInterval),
            "refused a node: number 999 (and 999 others before it)");
  EXPECT_LE(refusals_.TakeAll().size(), kRefusalsMax);
}

TEST_F(RefusalsTest, WhatIsNoRefusalIsNotShown) {
  RunNotice note;
  note.kind = NoticeKind::kNodeJoined;
  refusals_.OnNotice("run", note);
  EXPECT_EQ(wakes_, 0);
  EXPECT_TRUE(refusals_.TakeAll().empty());
  EXPECT_EQ(refusals_.TakeLine(kBegin), std::nullopt);
}

}  // namespace
}  // namespace ddprun
