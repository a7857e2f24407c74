// SPDX-License-Identifier: Apache-2.0
#include "launcher/doctor/doctor_probe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "launcher/base/limits.h"

namespace ddprun {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(DoctorPairs, AFewNodesConnectToAllOthers) {
  EXPECT_THAT(PlanPeers(0, 1), IsEmpty());
  EXPECT_THAT(PlanPeers(1, 3), ElementsAre(0, 2));
}

TEST(DoctorPairs, OfManyNodesEachHasThreePeersAndIsTriedFromAnother) {
  for (const int count : {kProbeAllNodesMax, 100}) {
    std::set<int> reached;
    for (int index = 0; index < count; ++index) {
      const std::vector<int> peers = PlanPeers(index, count);
      EXPECT_LE(peers.size(), 3u);
      for (const int peer : peers) EXPECT_NE(peer, index);
      reached.insert(peers.begin(), peers.end());
      EXPECT_THAT(peers, testing::Contains(RingPeer(index, count)));
      if (index != 0) {
        EXPECT_THAT(peers, testing::Contains(0));
      }
    }
    EXPECT_EQ(static_cast<int>(reached.size()), count);
  }
}

TEST(DoctorPairs, TheClockIsThatOfTheQuickestAnswer) {
  // The other clock is 5 s ahead; the slow answers were held up on one of their ways.
  const std::int64_t second = 1'000'000'000;
  const std::int64_t start = 1'700'000'000 * second;
  const ClockEstimate estimate =
      EstimateClock({{start, 40'000'000, start + 5 * second + 39'000'000},
                     {start + second, 200'000, start + 6 * second + 100'000},
                     {start + 2 * second, 30'000'000, start + 7 * second + 1'000}});
  EXPECT_DOUBLE_EQ(estimate.skew_seconds, 5);
  EXPECT_DOUBLE_EQ(estimate.uncertainty, 1e-4);
  EXPECT_DOUBLE_EQ(estimate.rtt_seconds, 0.03);
}

TEST(DoctorPairs, TheTruthIsWithinTheUncertainty) {
  for (const double share : {0.0, 0.3, 1.0}) {  // of the round trip, on the way there
    const std::int64_t rtt = 1'000'000;
    const std::int64_t skew = -123'456'789;
    const auto there = static_cast<std::int64_t>(share * static_cast<double>(rtt));
    const ClockEstimate estimate = EstimateClock({{0, rtt, there + skew}});
    EXPECT_NEAR(estimate.skew_seconds, -0.123456789, estimate.uncertainty * 1.0001);
  }
}

}  // namespace
}  // namespace ddprun
