// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/base/backoff.h"

#include <gtest/gtest.h>

namespace ddprun {
namespace {

using std::chrono::milliseconds;

TEST(BackoffTest, DoublesUpToTheLongestAndStartsAnew) {
  Backoff backoff;
  EXPECT_EQ(backoff.Next(milliseconds(70)), milliseconds(20));
  EXPECT_EQ(backoff.Next(milliseconds(70)), milliseconds(40));
  EXPECT_EQ(backoff.Next(milliseconds(70)), milliseconds(70));
  EXPECT_EQ(backoff.Next(milliseconds(70)), milliseconds(70));
  backoff.Reset();
  EXPECT_EQ(backoff.Next(milliseconds(70)), milliseconds(20));
}

}  // namespace
}  // namespace ddprun
