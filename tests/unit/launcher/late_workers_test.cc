// SPDX-License-Identifier: Apache-2.0
#include "launcher/hang/late_workers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "rendezvous/base/limits.h"

namespace ddprun {
namespace {

using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr TimePoint kBegin{seconds(1000)};
constexpr Duration kTime = kLateEndTime;

class LateWorkersTest : public ::testing::Test {
 protected:
  void SetUp() override { workers_.Start(4); }
  LateWorkers workers_;
};

TEST_F(LateWorkersTest, ThoseThatRemainAreTakenOnceAWhileAfterTheLastEnd) {
  workers_.OnExit(3, kBegin);
  workers_.OnExit(0, kBegin + seconds(10));
  EXPECT_EQ(workers_.due(), kBegin + seconds(10) + kTime);
  EXPECT_THAT(workers_.Take(kBegin + kTime), IsEmpty());
  EXPECT_THAT(workers_.Take(kBegin + seconds(10) + kTime), ElementsAre(1, 2));
  EXPECT_FALSE(workers_.due());
  EXPECT_THAT(workers_.Take(kBegin + 9 * kTime), IsEmpty());
}

TEST_F(LateWorkersTest, OneThatWritesIsNotLate) {
  workers_.OnExit(0, kBegin);
  workers_.OnSign(kBegin + seconds(50));
  EXPECT_THAT(workers_.Take(kBegin + kTime), IsEmpty());
  EXPECT_EQ(workers_.due(), kBegin + seconds(50) + kTime);
  EXPECT_THAT(workers_.Take(kBegin + seconds(50) + kTime), ElementsAre(1, 2, 3));
}

TEST_F(LateWorkersTest, WithoutAnEndOrAfterTheLastOneNoneIs) {
  workers_.OnSign(kBegin);
  EXPECT_FALSE(workers_.due());
  for (int i = 0; i < 4; ++i) workers_.OnExit(i, kBegin);
  EXPECT_FALSE(workers_.due());
  workers_.OnExit(7, kBegin);  // of another round
  EXPECT_THAT(workers_.Take(kBegin + kTime), IsEmpty());
}

TEST_F(LateWorkersTest, ARoundThatEndsForgetsThem) {
  workers_.OnExit(0, kBegin);
  workers_.End();
  EXPECT_FALSE(workers_.due());
  workers_.Start(2);
  EXPECT_FALSE(workers_.due());
}

}  // namespace
}  // namespace ddprun
