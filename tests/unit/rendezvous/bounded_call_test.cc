// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/base/bounded_call.h"

#include <gtest/gtest.h>

#include <string>

namespace ddprun {
namespace {

TEST(BoundedCallTest, GivesTheResultOfACallThatReturns) {
  EXPECT_EQ(CallWithDeadline<std::string>(std::chrono::seconds(30), [] { return "done"; }), "done");
}

TEST(BoundedCallTest, ACallThatHangsIsLeftBehind) {
  auto release = std::make_shared<std::mutex>();
  const std::unique_lock<std::mutex> held(*release);
  EXPECT_FALSE(CallWithDeadline<bool>(std::chrono::milliseconds(1), [release] {
                 const std::lock_guard<std::mutex> lock(*release);
                 return true;
               }).has_value());
}

}  // namespace
}  // namespace ddprun
