// SPDX-License-Identifier: Apache-2.0
// Which ends of workers this agent has caused.
#include "launcher/workers/stop_signals.h"

#include "tests/unit/launcher/workers_fixture.h"

namespace ddprun {
namespace {

class StopSignalsTest : public WorkersFixture {
 protected:
  bool Caused(Asked asked, const Outcome& outcome) {
    (*table_)[1].asked = asked;
    return signals_->Caused(1, outcome);
  }
  void SetUp() override {
    WorkersFixture::SetUp();
    signals_ = std::make_unique<StopSignals>(config_, *table_, *requests_);
  }

  std::unique_ptr<StopSignals> signals_;
};

TEST_F(StopSignalsTest, WhatAWorkerDoesBeforeItIsAskedIsItsOwn) {
  signals_->Send(SIGTERM, /*keep=*/false);
  for (const Asked asked : {Asked::kNothing, Asked::kWhileFailing}) {
    EXPECT_FALSE(Caused(asked, Exited{1}));
    EXPECT_FALSE(Caused(asked, Signaled{SIGTERM, false}));
  }
}

TEST_F(StopSignalsTest, WhatAHealthyOneDoesAfterwardsIsTheAgents) {
  for (const Asked asked : {Asked::kToLeave, Asked::kToEnd}) {
    EXPECT_TRUE(Caused(asked, Exited{1}));
    EXPECT_TRUE(Caused(asked, Signaled{SIGSEGV, true})) << "its peers were gone";
  }
}

TEST_F(StopSignalsTest, OneThatWasEndingIsEndedByTheSignalThatItGot) {
  EXPECT_FALSE(Caused(Asked::kWhileEnding, Signaled{SIGTERM, false})) << "none was sent";
  signals_->Send(SIGTERM, /*keep=*/false);
  EXPECT_TRUE(Caused(Asked::kWhileEnding, Signaled{SIGTERM, false}));
  EXPECT_FALSE(Caused(Asked::kWhileEnding, Signaled{SIGSEGV, true}));
  EXPECT_FALSE(Caused(Asked::kWhileEnding, Exited{1}));
  signals_->BeginRound();
  EXPECT_FALSE(Caused(Asked::kWhileEnding, Signaled{SIGTERM, false})) << "of an earlier round";
}

TEST_F(StopSignalsTest, AKillChangesNothingOfOneThatHadFailed) {
  for (const auto& [before, after] :
       {std::pair(Asked::kNothing, Asked::kToEnd), std::pair(Asked::kToLeave, Asked::kToEnd),
        std::pair(Asked::kWhileEnding, Asked::kWhileEnding),
        std::pair(Asked::kWhileFailing, Asked::kWhileFailing)}) {
    (*table_)[1].asked = before;
    signals_->Kill(1);
    EXPECT_EQ((*table_)[1].asked, after);
  }
  EXPECT_TRUE(Caused(Asked::kWhileEnding, Signaled{SIGKILL, false}));
}

}  // namespace
}  // namespace ddprun
