// SPDX-License-Identifier: Apache-2.0
#include "worker/library/core/step_order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

namespace ddprun {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

StepOrder At(std::int64_t step) {
  StepOrder order;
  order.Resume({.step = step});
  return order;
}

TEST(StepOrder, NothingComesBeforeResume) {
  StepOrder order;
  EXPECT_FALSE(order.resumed());
  const auto missing = HasSubstr("comes after Resume(), which is missing");
  EXPECT_THAT([&] { order.BeginStep({.step = 1}); }, ThrowsMessage<std::logic_error>(missing));
  EXPECT_THAT([&] { order.EndStep({.step = 1}); }, ThrowsMessage<std::logic_error>(missing));
  EXPECT_THAT([&] { order.Finish({.step = 1}); }, ThrowsMessage<std::logic_error>(missing));
  EXPECT_EQ(order.Unfinished(), std::nullopt);
}

TEST(StepOrder, EachStepCountsOne) {
  StepOrder order = At(7);
  EXPECT_THAT([&] { order.EndStep({.step = 7}); },
              ThrowsMessage<std::logic_error>(HasSubstr("got step 7 after step 7; call Epoch")));
  order.EndStep({.step = 8});
  EXPECT_EQ(order.position().step, 8);
  EXPECT_THROW(order.EndStep({.step = 8}), std::logic_error);
  EXPECT_THROW(order.EndStep({.step = 3}), std::logic_error);
}

TEST(StepOrder, WhatIsNotFinishedWouldBeLost) {
  StepOrder order = At(7);
  EXPECT_EQ(order.Unfinished(), std::nullopt);  // it came from somewhere
  order.BeginStep({.step = 8});
  EXPECT_EQ(order.Unfinished()->step, 8);
  EXPECT_EQ(order.position().step, 7);
  order.EndStep({.step = 8});
  EXPECT_EQ(order.Unfinished()->step, 8);
  order.Finish({.step = 8, .epoch = 1});
  EXPECT_EQ(order.Unfinished(), std::nullopt);
  EXPECT_EQ(order.position().epoch, 1);
  order.EndStep({.step = 9, .epoch = 1});  // it was not the end
  EXPECT_EQ(order.Unfinished()->step, 9);
}

TEST(StepOrder, NoStepFollowsASignal) {
  StepOrder order = At(0);
  order.EndStep({.step = 1});
  order.Stop();
  EXPECT_EQ(order.Unfinished(), std::nullopt);
  EXPECT_THAT([&] { order.EndStep({.step = 2}); },
              ThrowsMessage<std::logic_error>(HasSubstr("has returned true, and a signal")));
}

}  // namespace
}  // namespace ddprun
