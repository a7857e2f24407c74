// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/handshakes.h"

#include <gtest/gtest.h>

#include <set>

namespace ddprun {
namespace {

using std::chrono::seconds;

class HandshakesTest : public ::testing::Test {
 protected:
  void Begin(const std::string& address, int port, int fd) {
    handshakes_.Began(address + " " + std::to_string(port), address, {.fd = fd}, now_);
  }
  void Sweep(bool all) {
    handshakes_.Sweep(
        now_, [this](const Handshakes::Socket& socket) { return closed_.count(socket.fd) == 0; },
        all);
  }

  Handshakes handshakes_{
      {.connections_max = 5, .handshakes_max = 3, .per_address_max = 2, .timeout = seconds(5)}};
  Handshakes::TimePoint now_{};
  std::set<int> closed_;
};

TEST_F(HandshakesTest, OneAddressCannotHaveThemAll) {
  Begin("a", 1, 1);
  EXPECT_TRUE(handshakes_.MayBegin("a"));
  Begin("a", 2, 2);
  EXPECT_FALSE(handshakes_.MayBegin("a"));
  EXPECT_TRUE(handshakes_.MayBegin("b"));
  Begin("b", 1, 3);
  EXPECT_FALSE(handshakes_.MayBegin("c"));
}

TEST_F(HandshakesTest, WhoHasProvenWhoItIsMakesRoom) {
  Begin("a", 1, 1);
  Begin("a", 2, 2);
  handshakes_.Proven("a 1");
  EXPECT_TRUE(handshakes_.MayBegin("a"));
  EXPECT_EQ(handshakes_.handshakes(), 1u);
  EXPECT_EQ(handshakes_.connections(), 2u);
  handshakes_.Proven("a 1");
  handshakes_.Proven("never seen");
  EXPECT_EQ(handshakes_.connections(), 2u);
}

TEST_F(HandshakesTest, WhatIsClosedMakesRoomWithTheNextSweep) {
  Begin("a", 1, 1);
  Begin("a", 2, 2);
  closed_ = {1};
  Sweep(false);
  EXPECT_TRUE(handshakes_.MayBegin("a"));
  EXPECT_EQ(handshakes_.connections(), 1u);
}

TEST_F(HandshakesTest, AnOldOneIsDoneAndCountsAsAConnection) {
  Begin("a", 1, 1);
  now_ += seconds(6);
  Sweep(false);
  EXPECT_EQ(handshakes_.handshakes(), 0u);
  EXPECT_EQ(handshakes_.connections(), 1u);
  closed_ = {1};
  Sweep(false);
  EXPECT_EQ(handshakes_.connections(), 1u);
  Sweep(true);
  EXPECT_EQ(handshakes_.connections(), 0u);
}

TEST_F(HandshakesTest, AllConnectionsTogetherHaveALimit) {
  for (int fd = 0; fd < 5; ++fd) {
    ASSERT_TRUE(handshakes_.MayBegin("a"));
    Begin("a", fd, fd);
    handshakes_.Proven("a " + std::to_string(fd));
  }
  EXPECT_FALSE(handshakes_.MayBegin("b"));
}

TEST_F(HandshakesTest, APortThatIsUsedAgainIsOneConnection) {
  Begin("a", 1, 1);
  Begin("a", 1, 2);
  EXPECT_EQ(handshakes_.connections(), 1u);
  handshakes_.Proven("a 1");
  Begin("a", 1, 3);
  EXPECT_EQ(handshakes_.connections(), 1u);
  EXPECT_EQ(handshakes_.handshakes(), 1u);
}

}  // namespace
}  // namespace ddprun
