// SPDX-License-Identifier: Apache-2.0
#include "launcher/base/bounded_queue.h"

#include <gtest/gtest.h>

#include <string>

namespace ddprun {
namespace {

TEST(BoundedQueueTest, ANewItemWithoutRoomIsLeftOutAndCounted) {
  BoundedQueue<std::string> queue(Overflow::kRefuse, {.size_max = 10});
  queue.Push("a", 6);
  queue.Push("b", 5);
  queue.Push("c", 5);
  queue.Push("d", 4);
  EXPECT_TRUE(queue.is_full());
  EXPECT_EQ(queue.Pop().value, "a");
  const auto next = queue.Pop();
  EXPECT_EQ(next.value, "d");
  EXPECT_EQ(next.left_out, 2u) << "it stands where they are missing";
  EXPECT_TRUE(queue.empty());
  EXPECT_EQ(queue.size(), 0u);
  EXPECT_EQ(queue.left_out(), 0u);
}

TEST(BoundedQueueTest, WhatIsMissingAtTheEndIsCountedToo) {
  BoundedQueue<int> queue(Overflow::kRefuse, {.size_max = 1});
  queue.Push(1, 1);
  queue.Push(2, 1);
  EXPECT_EQ(queue.left_out(), 1u);
  EXPECT_EQ(queue.TakeLeftOut(), 1u);
  EXPECT_EQ(queue.TakeLeftOut(), 0u);
  queue.PushBeyondLimit(3, 1);
  EXPECT_EQ(queue.size(), 2u);
  EXPECT_EQ(queue.items().back().left_out, 0u);
}

TEST(BoundedQueueTest, ATailHoldsTheNewestAndAtLeastSoMany) {
  BoundedQueue<int> queue(Overflow::kDropOldest, {.size_max = 10, .items_kept = 2});
  for (int i = 0; i < 5; ++i) queue.Push(i, 3);
  EXPECT_EQ(queue.items().size(), 3u);
  EXPECT_EQ(queue.items().front().value, 2);
  queue.Push(5, 100);
  EXPECT_EQ(queue.items().size(), 2u);
  EXPECT_EQ(queue.items().front().value, 4);
}

}  // namespace
}  // namespace ddprun
