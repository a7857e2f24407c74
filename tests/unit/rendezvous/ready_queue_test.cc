// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/listener/ready_queue.h"

#include <gtest/gtest.h>

namespace ddprun {
namespace {

TEST(ReadyQueueTest, GroupsTakeTurnsAndTheNewestOfEachIsFirst) {
  ReadyQueue queue;
  for (int fd = 1; fd <= 3; ++fd) queue.Add("crowd", fd);
  queue.Add("one", 4);
  std::vector<int> taken;
  while (!queue.empty()) taken.push_back(queue.TakeNewest(std::string(queue.NextGroup())));
  EXPECT_EQ(taken, (std::vector<int>{3, 4, 2, 1}));
}

TEST(ReadyQueueTest, WhatIsRemovedIsGone) {
  ReadyQueue queue;
  queue.Add("a", 1);
  queue.Add("a", 2);
  queue.Remove("a", 2);
  EXPECT_EQ(queue.TakeNewest("a"), 1);
  queue.Add("b", 3);
  queue.Remove("b", 3);
  EXPECT_TRUE(queue.empty());
  EXPECT_EQ(queue.groups(), 0u);
}

}  // namespace
}  // namespace ddprun
