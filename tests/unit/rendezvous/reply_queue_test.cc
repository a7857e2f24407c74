// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/proxy/reply_queue.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <string>

#include "rendezvous/base/limits.h"
#include "rendezvous/base/owned_fd.h"

namespace ddprun {
namespace {

constexpr std::size_t kLarge = std::size_t{4} << 20;

class ReplyQueueTest : public ::testing::Test {
 protected:
  ReplyQueueTest() {
    int ends[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    own = OwnedFd(ends[0]);
    client = OwnedFd(ends[1]);
  }

  // What the client reads, at most so much.
  std::string Read(std::size_t count) {
    std::string bytes(count, '\0');
    const ssize_t got = recv(client.get(), bytes.data(), count, MSG_DONTWAIT);
    bytes.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
    return bytes;
  }
  bool Send(std::vector<StoreValue> more = {}) {
    return queue.Send(own.get(), std::move(more), now);
  }

  OwnedFd own;
  OwnedFd client;
  TimePoint now{std::chrono::hours(1)};
  UnreadBytes all;
  ReplyQueue queue{all};
};

TEST_F(ReplyQueueTest, WhatTheSocketTakesIsNotQueued) {
  EXPECT_TRUE(Send({"one ", "", "two"}));
  EXPECT_TRUE(queue.empty());
  EXPECT_EQ(all.total(), 0u);
  EXPECT_EQ(Read(100), "one two");
}

TEST_F(ReplyQueueTest, TheRestFollowsInOrder) {
  std::string expected = "head" + std::string(kLarge, 'a') + "middle" + std::string(kLarge, 'b');
  EXPECT_TRUE(Send({"head", std::string(kLarge, 'a'), "middle"}));
  EXPECT_TRUE(Send({std::string(kLarge, 'b')}));
  EXPECT_FALSE(queue.empty());
  std::string got;
  while (got.size() < expected.size()) {
    const std::string more = Read(100'000);
    ASSERT_FALSE(more.empty() && queue.empty());
    got += more;
    EXPECT_TRUE(Send());
  }
  EXPECT_TRUE(got == expected);
  EXPECT_TRUE(queue.empty());
  EXPECT_EQ(all.total(), 0u);
}

TEST_F(ReplyQueueTest, AValueCountsOnceHoweverManyWaitForIt) {
  const StoreValue value(std::string(kLarge, 'v'));
  {
    ReplyQueue other(all);
    EXPECT_TRUE(Send({value, value}));
    EXPECT_TRUE(other.Send(own.get(), {value, std::string(kLarge, 'w')}, now));
    EXPECT_EQ(all.total(), 2 * kLarge);
  }
  EXPECT_EQ(all.total(), kLarge);
  queue.Clear();
  EXPECT_EQ(all.total(), 0u);
}

TEST_F(ReplyQueueTest, OnlyWhoReadsKeepsUp) {
  EXPECT_TRUE(Send({std::string(kLarge, 'v')}));
  EXPECT_EQ(queue.kept_up_until(), now);
  const TimePoint begin = now;
  now += std::chrono::hours(1);
  EXPECT_TRUE(Send());
  EXPECT_EQ(queue.kept_up_until(), begin);
  // A trickle does not keep up: a second's worth of bytes is worth a second, whenever it is read.
  std::size_t read = 0;
  while (read < kLarge / 4) {
    read += Read(64 * 1024).size();
    EXPECT_TRUE(Send());
  }
  const double seconds = std::chrono::duration<double>(queue.kept_up_until() - begin).count();
  EXPECT_GT(seconds, 0);
  EXPECT_LE(seconds, static_cast<double>(kLarge) / kUnreadReplyRate);
}

TEST_F(ReplyQueueTest, AConnectionThatIsGoneHoldsNothing) {
  EXPECT_TRUE(Send({std::string(kLarge, 'v')}));
  client.Reset();
  EXPECT_FALSE(Send({"more"}));
  EXPECT_TRUE(queue.empty());
  EXPECT_EQ(all.total(), 0u);
}

}  // namespace
}  // namespace ddprun
