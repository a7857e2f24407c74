// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/listener/handshakes.h"

#include <gtest/gtest.h>

#include <set>

namespace ddprun {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

using Pool = Handshakes::Pool;

class HandshakesTest : public ::testing::Test {
 protected:
  void Begin(const std::string& address, int port, int fd, Pool pool = Pool::kStrangers) {
    handshakes_.Began(address + " " + std::to_string(port), pool, address, {.fd = fd}, now_);
  }
  bool MayBegin(const std::string& group, Pool pool = Pool::kStrangers) const {
    return handshakes_.MayBegin(pool, group);
  }
  // The descriptor of the handshake that has to go; -1: none has.
  int MakeRoom(const std::string& group, Pool pool = Pool::kStrangers) {
    const auto oldest = handshakes_.MakeRoom(pool, group, now_);
    return oldest ? oldest->fd : -1;
  }
  void Sweep(bool all) {
    handshakes_.Sweep(
        now_, [this](const Handshakes::Socket& socket) { return closed_.count(socket.fd) == 0; },
        all);
  }

  Handshakes handshakes_{{.connections_max = 5,
                          .strangers = {.all = 3, .per_group = 2},
                          .members = {.all = 2, .per_group = 1},
                          .patience = seconds(1),
                          .timeout = seconds(5)}};
  TimePoint now_{};
  std::set<int> closed_;
};

TEST_F(HandshakesTest, OneAddressCannotHaveThemAll) {
  Begin("a", 1, 1);
  EXPECT_TRUE(MayBegin("a"));
  Begin("a", 2, 2);
  EXPECT_FALSE(MayBegin("a"));
  EXPECT_TRUE(MayBegin("b"));
  Begin("b", 1, 3);
  EXPECT_FALSE(MayBegin("c"));
}

TEST_F(HandshakesTest, WhoHasProvenWhoItIsMakesRoom) {
  Begin("a", 1, 1);
  Begin("a", 2, 2);
  handshakes_.Proven("a 1");
  EXPECT_TRUE(MayBegin("a"));
  EXPECT_EQ(handshakes_.handshakes(Pool::kStrangers), 1u);
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
  EXPECT_TRUE(MayBegin("a"));
  EXPECT_EQ(handshakes_.connections(), 1u);
}

TEST_F(HandshakesTest, AnOldOneIsDoneAndCountsAsAConnection) {
  Begin("a", 1, 1);
  now_ += seconds(6);
  Sweep(false);
  EXPECT_EQ(handshakes_.handshakes(Pool::kStrangers), 0u);
  EXPECT_EQ(handshakes_.connections(), 1u);
  closed_ = {1};
  Sweep(false);
  EXPECT_EQ(handshakes_.connections(), 1u);
  Sweep(true);
  EXPECT_EQ(handshakes_.connections(), 0u);
}

TEST_F(HandshakesTest, AllConnectionsTogetherHaveALimit) {
  for (int fd = 0; fd < 5; ++fd) {
    ASSERT_TRUE(MayBegin("a"));
    Begin("a", fd, fd);
    handshakes_.Proven("a " + std::to_string(fd));
  }
  EXPECT_FALSE(MayBegin("b"));
}

TEST_F(HandshakesTest, APortThatIsUsedAgainIsOneConnection) {
  Begin("a", 1, 1);
  Begin("a", 1, 2);
  EXPECT_EQ(handshakes_.connections(), 1u);
  handshakes_.Proven("a 1");
  Begin("a", 1, 3);
  EXPECT_EQ(handshakes_.connections(), 1u);
  EXPECT_EQ(handshakes_.handshakes(Pool::kStrangers), 1u);
}

TEST_F(HandshakesTest, MembersHaveSlotsOfTheirOwn) {
  for (int fd = 1; fd <= 3; ++fd) Begin(fd == 3 ? "b" : "a", fd, fd);
  EXPECT_FALSE(MayBegin("c"));
  EXPECT_TRUE(MayBegin("a", Pool::kMembers));
  Begin("m", 4, 4, Pool::kMembers);
  EXPECT_FALSE(MayBegin("m", Pool::kMembers));
  EXPECT_TRUE(MayBegin("n", Pool::kMembers));
  EXPECT_EQ(handshakes_.handshakes(Pool::kMembers), 1u);
}

TEST_F(HandshakesTest, TheOldestOfAFullGroupHasToGo) {
  Begin("b", 3, 3);
  now_ += milliseconds(1);
  Begin("a", 1, 1);
  now_ += milliseconds(1);
  Begin("a", 2, 2);
  EXPECT_EQ(MakeRoom("a"), -1) << "all are young";
  now_ += seconds(1);
  EXPECT_EQ(MakeRoom("a"), 1) << "and not of another one, which is older";
  EXPECT_TRUE(MayBegin("a"));
  EXPECT_EQ(MakeRoom("a"), -1) << "there is room";
  EXPECT_EQ(handshakes_.connections(), 2u);
}

TEST_F(HandshakesTest, TheOldestOfAllHasToGoWhereAllAreTooMany) {
  Begin("a", 1, 1);
  now_ += milliseconds(1);
  Begin("a", 2, 2);
  Begin("b", 3, 3);
  now_ += seconds(1);
  EXPECT_EQ(MakeRoom("c"), 1);
  EXPECT_TRUE(MayBegin("c"));
}

TEST_F(HandshakesTest, AMemberHasToGoForItselfAlone) {
  Begin("m", 1, 1, Pool::kMembers);
  Begin("n", 2, 2, Pool::kMembers);
  now_ += seconds(2);
  EXPECT_EQ(MakeRoom("o", Pool::kMembers), -1);
  EXPECT_EQ(MakeRoom("m", Pool::kMembers), 1);
}

}  // namespace
}  // namespace ddprun
