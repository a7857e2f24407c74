// SPDX-License-Identifier: Apache-2.0
#include "worker/train/pipeline/part_costs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>
#include <stdexcept>

namespace ddprun {
namespace {

using testing::ElementsAre;

double Dearest(const std::vector<double>& costs, const std::vector<std::size_t>& cuts) {
  double dearest = 0;
  for (std::size_t s = 0; s < cuts.size(); ++s) {
    const std::size_t end = s + 1 < cuts.size() ? cuts[s + 1] : costs.size();
    double cost = 0;
    for (std::size_t i = cuts[s]; i < end; ++i) cost += costs[i];
    dearest = std::max(dearest, cost);
  }
  return dearest;
}

// Tries all.
double LeastDearest(const std::vector<double>& costs, std::vector<std::size_t> cuts,
                    std::size_t stages) {
  if (cuts.size() == stages) return Dearest(costs, cuts);
  double least = std::numeric_limits<double>::infinity();
  const std::size_t room = stages - cuts.size() - 1;  // parts that later stages need
  for (std::size_t i = cuts.back() + 1; i + room < costs.size(); ++i) {
    cuts.push_back(i);
    least = std::min(least, LeastDearest(costs, cuts, stages));
    cuts.pop_back();
  }
  return least;
}

TEST(BalancedCuts, TheDearestStageCostsAsLittleAsCanBe) {
  std::mt19937 random(7);
  std::uniform_real_distribution<double> cost(0, 10);
  for (int i = 0; i < 200; ++i) {
    std::vector<double> costs(1 + random() % 9);
    for (double& value : costs) value = cost(random);
    const std::size_t stages = 1 + random() % costs.size();
    const auto cuts = BalancedCuts(costs, stages);
    ASSERT_EQ(cuts.size(), stages);
    EXPECT_EQ(cuts.front(), 0u);
    EXPECT_TRUE(std::is_sorted(cuts.begin(), cuts.end(), std::less_equal<>()));  // none is empty
    EXPECT_LT(cuts.back(), costs.size());
    EXPECT_NEAR(Dearest(costs, cuts), LeastDearest(costs, {0}, stages), 1e-9);
  }
}

TEST(BalancedCuts, OfEqualCutsTheEarlierStagesAreShort) {
  EXPECT_THAT(BalancedCuts({9, 0, 0, 9}, 2), ElementsAre(0, 1));
  EXPECT_THAT(BalancedCuts({1, 1, 9}, 2), ElementsAre(0, 2));
  EXPECT_THAT(BalancedCuts({0, 0, 0, 0}, 3), ElementsAre(0, 1, 2));
}

TEST(BalancedCuts, MoreStagesThanPartsAreRefused) {
  EXPECT_THROW(BalancedCuts({1, 2}, 3), std::invalid_argument);
  EXPECT_THROW(BalancedCuts({1, 2}, 0), std::invalid_argument);
}

}  // namespace
}  // namespace ddprun
