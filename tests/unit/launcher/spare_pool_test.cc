// SPDX-License-Identifier: Apache-2.0
#include "launcher/workers/spare_pool.h"

#include <gmock/gmock.h>

#include "launcher/base/limits.h"
#include "tests/testing/eventually.h"
#include "tests/unit/launcher/workers_fixture.h"

namespace ddprun {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Node = SparePool::Node;

class SparePoolTest : public WorkersFixture {
 protected:
  void SetUp() override {
    WorkersFixture::SetUp();
    pool_ =
        std::make_unique<SparePool>(config_, *table_, *requests_, cgroup_, background_, nullptr);
  }
  // The one that is being started is there, and has ended: its program does not exist.
  void TakeParked(bool kill = false) {
    EXPECT_TRUE(Eventually([&] { return pool_->TakeParked(kill).has_value(); }));
  }

  std::unique_ptr<SparePool> pool_;
};

TEST_F(SparePoolTest, ANodeWithoutARoundParksOnlyWhenItIsAskedTo) {
  pool_->OnTurn(Node::kIdle);
  EXPECT_FALSE(pool_->IsStarting());
  pool_->Prepare();
  pool_->OnTurn(Node::kBusy);
  EXPECT_FALSE(pool_->IsStarting());
  pool_->OnTurn(Node::kIdle);
  EXPECT_TRUE(pool_->IsStarting());
}

TEST_F(SparePoolTest, OneIsStartedAtATime) {
  pool_->Prepare();
  pool_->OnTurn(Node::kIdle);
  pool_->OnTurn(Node::kIdle);
  EXPECT_EQ(table_->count(), 3);
  EXPECT_EQ(table_->NameOf(2), "a spare worker");
}

TEST_F(SparePoolTest, ARoundWhoseWorkersCannotBeKeptHasNoSpares) {
  config_.options.restarts.spares = 1;
  pool_->OnTurn(Node::kRunning);
  EXPECT_FALSE(pool_->IsStarting());
}

TEST_F(SparePoolTest, AfterSomeFailuresInARowNoneIsStarted) {
  pool_->Prepare();
  for (int i = 0; i < kParkedFailuresMax; ++i) {
    pool_->OnTurn(Node::kIdle);
    ASSERT_TRUE(pool_->IsStarting());
    TakeParked();
  }
  EXPECT_THAT(Printed(), HasSubstr("a spare worker ended with exit code 127; no other one"));
  pool_->OnTurn(Node::kIdle);
  EXPECT_FALSE(pool_->IsStarting());
  pool_->Prepare();  // the next round is worth another attempt
  pool_->OnTurn(Node::kIdle);
  EXPECT_TRUE(pool_->IsStarting());
}

TEST_F(SparePoolTest, OneThatSaysThatItCanBeKeptEndsARowOfFailures) {
  pool_->Prepare();
  for (int i = 0; i < 2 * kParkedFailuresMax; ++i) {
    pool_->OnTurn(Node::kIdle);
    ASSERT_TRUE(pool_->IsStarting());
    TakeParked();
    pool_->OnReport();
  }
}

TEST_F(SparePoolTest, TheEndOfOneThatIsNotWantedIsNoFailure) {
  pool_->Prepare();
  pool_->OnTurn(Node::kIdle);
  TakeParked(/*kill=*/true);
  EXPECT_EQ(Printed(), "");
}

TEST_F(SparePoolTest, OneThatDoesNotStartIsGivenUp) {
  EXPECT_FALSE(pool_->WaitsForStart(now_));
  pool_->Prepare();
  pool_->OnTurn(Node::kIdle);
  EXPECT_TRUE(pool_->WaitsForStart(now_));
  EXPECT_EQ(pool_->NextDeadline(), now_ + kSpareStartTimeout);
  EXPECT_FALSE(pool_->WaitsForStart(now_ + kSpareStartTimeout));
  EXPECT_THAT(Printed(), HasSubstr("a spare worker is given up, because it could not be started"));
  EXPECT_FALSE(pool_->IsStarting());
  TakeParked();  // should it come after all
  EXPECT_THAT(Printed(), Not(HasSubstr("ended with")));
}

TEST_F(SparePoolTest, AWorkerThatIsNotThereCanNotBeKept) {
  pool_->Prepare();
  EXPECT_EQ(pool_->TakeKeeping(Node::kIdle), std::nullopt) << "as before";
  (*table_)[0].can_be_kept = true;
  EXPECT_EQ(pool_->TakeKeeping(Node::kRunning), std::nullopt);
  EXPECT_EQ(pool_->ReadyFor(0), std::nullopt);
}

}  // namespace
}  // namespace ddprun
