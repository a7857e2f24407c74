// SPDX-License-Identifier: Apache-2.0
#include "launcher/agent/own_address.h"

#include <gtest/gtest.h>

#include <poll.h>

#include <chrono>

namespace ddprun {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class OwnAddressTest : public testing::Test {
 protected:
  OwnAddressTest() {
    options_.nodes = 2;
    options_.join_timeout = seconds(5);
    service_.name = "a:29500";
    service_.port = 29500;
  }

  // Turns until something comes of it, at a time of the test's own.
  std::optional<std::string> Turn(TimePoint now) {
    const auto limit = std::chrono::steady_clock::now() + seconds(20);
    while (std::chrono::steady_clock::now() < limit) {
      const auto address = own_.OnTurn(service_, now, events_);
      if (address.has_value() || !events_.empty()) return address;
      pollfd waited{.fd = background_.fd(), .events = POLLIN, .revents = 0};
      poll(&waited, 1, 100);
    }
    return std::nullopt;
  }

  Options options_;
  Background background_;
  RendezvousEndpoint service_;
  OwnAddress own_{options_, background_};
  std::vector<Event> events_;
  const TimePoint begin_{seconds(1000)};
};

TEST_F(OwnAddressTest, IsTheMastersInARunOfOneNode) {
  service_.name.clear();
  own_.Begin(begin_);
  EXPECT_EQ(own_.NextDeadline(), begin_);
  EXPECT_EQ(Turn(begin_), "127.0.0.1");
  EXPECT_EQ(own_.NextDeadline(), std::nullopt);
}

TEST_F(OwnAddressTest, IsThatOfTheRouteToTheService) {
  service_.host = "127.0.0.1";
  own_.Begin(begin_);
  EXPECT_EQ(Turn(begin_), "127.0.0.1");
  EXPECT_EQ(own_.address(), "127.0.0.1");
}

TEST_F(OwnAddressTest, TheUsersComesFirst) {
  service_.host = "127.0.0.1";
  options_.local_addr = "10.0.0.7";
  own_.Begin(begin_);
  EXPECT_EQ(Turn(begin_), "10.0.0.7");
}

TEST_F(OwnAddressTest, ANameWithoutAddressIsLookedUpAgainUntilTheTimeIsOver) {
  service_.host = "no.such.host.invalid";
  own_.Begin(begin_);
  EXPECT_EQ(Turn(begin_), std::nullopt);
  ASSERT_EQ(events_.size(), 1u);
  const auto* connecting = std::get_if<Connecting>(&events_[0]);
  ASSERT_NE(connecting, nullptr);
  EXPECT_NE(connecting->reason.find("no.such.host.invalid"), std::string::npos)
      << connecting->reason;
  EXPECT_EQ(connecting->remaining, milliseconds(5000));
  const std::optional<TimePoint> again = own_.NextDeadline();
  ASSERT_TRUE(again.has_value());
  EXPECT_GT(*again, begin_);

  events_.clear();
  EXPECT_EQ(Turn(begin_ + seconds(5)), std::nullopt);
  ASSERT_EQ(events_.size(), 1u);
  const auto* ended = std::get_if<SessionEnded>(&events_[0]);
  ASSERT_NE(ended, nullptr);
  EXPECT_TRUE(absl::IsDeadlineExceeded(ended->status)) << ended->status;
}

TEST_F(OwnAddressTest, AnAddressThatCannotBeJoinedWithIsTriedAgain) {
  service_.host = "127.0.0.1";
  own_.Begin(begin_);
  ASSERT_EQ(Turn(begin_), "127.0.0.1");
  own_.Retry(absl::ResourceExhaustedError("no port is free"), begin_, events_);
  ASSERT_EQ(events_.size(), 1u);
  EXPECT_EQ(std::get<Connecting>(events_[0]).reason, "no port is free");
  events_.clear();
  EXPECT_EQ(own_.OnTurn(service_, begin_, events_), std::nullopt);
  EXPECT_EQ(Turn(*own_.NextDeadline()), "127.0.0.1");
}

TEST_F(OwnAddressTest, ARoundOfOneNodeNamesNoInterface) {
  service_.host = "127.0.0.1";
  own_.Begin(begin_);
  ASSERT_EQ(Turn(begin_), "127.0.0.1");
  Start start;
  start.node_count = 1;
  EXPECT_TRUE(own_.Variables(start).empty());
}

}  // namespace
}  // namespace ddprun
