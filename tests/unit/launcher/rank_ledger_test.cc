// SPDX-License-Identifier: Apache-2.0
// What an agent counts of its ranks' time.
#include "launcher/hang/rank_ledger.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

#include "launcher/base/limits.h"

namespace ddprun {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

class RankLedgerTest : public ::testing::Test {
 protected:
  void Begin(int round, int workers) {
    ledger.Begin(RoundId{static_cast<std::uint64_t>(round)}, workers, now);
  }
  void Report(int local_rank, const std::string& text) {
    ledger.OnProgress(local_rank, ParseProgress(text), now);
  }
  double Seconds(TimeClass kind) {
    return std::chrono::duration<double>(ledger.Take(now)[kind]).count();
  }

  RankLedger ledger;
  TimePoint now{};
};

TEST_F(RankLedgerTest, AWorkersOwnAccountDividesItsTime) {
  Begin(1, 1);
  now += milliseconds(300);  // loading libraries
  Report(0, "SECTION=init");
  now += seconds(1);
  Report(0, "TIMES=start 0.8\nDOING=start");
  now += seconds(4);
  Report(0, "STEP=1\nTIMES=start 1.8,training 2,waiting 1\nDOING=data");
  now += milliseconds(1500);  // a quiet worker is where it said
  EXPECT_EQ(Seconds(TimeClass::kStart), 2.3);
  EXPECT_EQ(Seconds(TimeClass::kTraining), 2);
  EXPECT_EQ(Seconds(TimeClass::kWaiting), 1);
  EXPECT_EQ(Seconds(TimeClass::kData), 1.5);
  now += milliseconds(500);
  Report(0, "STEP=1\nTIMES=start 1.8,training 2,waiting 1,data 2\nDOING=training");
  now += milliseconds(10);
  ledger.OnExit(0, true, now);
  ledger.End(now);
  EXPECT_EQ(Seconds(TimeClass::kData), 2);
  EXPECT_EQ(ledger.Take(now).Sum(), milliseconds(7310));
}

TEST_F(RankLedgerTest, OfAProgramThatReportsNothingNothingIsSaid) {
  Begin(1, 2);
  now += seconds(1000);
  ledger.OnExit(0, false, now);
  now += seconds(1);
  ledger.End(now);
  now += seconds(3);
  Begin(2, 2);
  now += seconds(5);
  ledger.OnExit(0, true, now);
  now += seconds(5);
  ledger.End(now);
  EXPECT_EQ(ledger.Take(now).Sum(), seconds(0));
}

TEST_F(RankLedgerTest, AProgramWhoseCollectivesAreWatchedStartsUntilTheFirstOne) {
  Begin(1, 2);
  now += seconds(10);
  Report(0, "WAITS=\nLAST=0 - 0");  // it has a process group
  now += seconds(2);
  Report(0, "WAITS=1 all_reduce 12 float32 0");
  now += seconds(5);
  EXPECT_EQ(Seconds(TimeClass::kStart), 12 + 17);
  EXPECT_EQ(Seconds(TimeClass::kWaiting), 5);
  Report(0, "WAITS=-");
  Report(1, "WAITS=-");
  now += seconds(3);
  Report(1, "WAITS=\nLAST=3 all_reduce 0");  // it computes
  now += seconds(4);
  EXPECT_EQ(Seconds(TimeClass::kTraining), 2 * 7);
  Report(0, "WAITS=4 all_reduce 12 float32 0");
  now += seconds(1000);
  EXPECT_EQ(Seconds(TimeClass::kWaiting), 1005) << "a hang is no training";
  EXPECT_EQ(ledger.Take(now).Sum(), seconds(2 * (10 + 2 + 5 + 7 + 1000)));
}

TEST_F(RankLedgerTest, AWatchedProgramRecoversUntilTheFirstCollectiveOfItsNewRound) {
  Begin(1, 1);
  Report(0, "WAITS=-");
  now += seconds(5);
  ledger.OnBroken(now);
  now += seconds(1);
  ledger.End(now);
  now += seconds(2);
  Begin(2, 1);
  now += seconds(4);
  Report(0, "WAITS=-");
  now += seconds(8);
  EXPECT_EQ(Seconds(TimeClass::kRecovery), 1 + 2 + 4);
  EXPECT_EQ(Seconds(TimeClass::kTraining), 5 + 8);
}

TEST_F(RankLedgerTest, AWorkersOwnAccountCountsMoreThanItsPlace) {
  Begin(1, 1);
  Report(0, "STEP=1\nTIMES=training 0\nDOING=data");
  now += seconds(2);
  Report(0, "WAITS=1 all_reduce 12 float32 0");
  now += seconds(3);
  EXPECT_EQ(Seconds(TimeClass::kData), 5);
  EXPECT_EQ(Seconds(TimeClass::kWaiting), 0);
}

TEST_F(RankLedgerTest, RecoveryLastsUntilANewStep) {
  Begin(1, 1);
  Report(0, "STEP=1");
  now += seconds(5);
  Report(0, "STEP=8\nTIMES=training 5\nDOING=waiting");
  ledger.OnBroken(now);
  now += seconds(1);
  ledger.End(now);
  now += seconds(2);
  Begin(2, 1);
  now += seconds(1);
  Report(0, "STEP=6\nTIMES=start 1\nDOING=training");
  now += seconds(3);
  Report(0, "STEP=8\nTIMES=start 1,training 3\nDOING=training");
  now += seconds(1);
  Report(0, "STEP=9\nTIMES=start 1,training 4\nDOING=training");
  EXPECT_EQ(Seconds(TimeClass::kRecovery), 8);
  now += seconds(2);
  Report(0, "STEP=10\nTIMES=start 1,training 6\nDOING=training");
  EXPECT_EQ(Seconds(TimeClass::kRecovery), 8);
  EXPECT_EQ(Seconds(TimeClass::kTraining), 7);
}

TEST_F(RankLedgerTest, KeptWorkersRecoverWithoutAnEnd) {
  Begin(1, 1);
  Report(0, "STEP=4\nTIMES=start 0\nDOING=training");
  now += seconds(2);
  Report(0, "STEP=5\nTIMES=training 2\nDOING=waiting");
  now += milliseconds(200);
  ledger.OnBroken(now);
  now += milliseconds(50);
  Begin(2, 1);
  now += milliseconds(30);
  Report(0, "STEP=5\nTIMES=training 2,waiting 0.2\nDOING=training");
  now += milliseconds(70);
  Report(0, "STEP=6\nTIMES=training 2.07,waiting 0.2\nDOING=training");
  now += seconds(1);
  Report(0, "STEP=7\nTIMES=training 3.07,waiting 0.2\nDOING=training");
  EXPECT_EQ(Seconds(TimeClass::kTraining), 3);
  EXPECT_EQ(Seconds(TimeClass::kWaiting), 0.2);
  EXPECT_EQ(Seconds(TimeClass::kRecovery), 0.15);
}

TEST_F(RankLedgerTest, ASpareIsNoRank) {
  Begin(1, 1);
  Report(0, "STEP=1");
  now += seconds(1);
  ledger.OnBroken(now);
  ledger.End(now);
  now += seconds(100);  // round 2 ran without this node
  Begin(3, 1);
  EXPECT_EQ(ledger.Take(now).Sum(), seconds(1));
}

TEST_F(RankLedgerTest, OneThatHasEndedWaitsForTheOthers) {
  Begin(1, 2);
  Report(0, "STEP=1");
  Report(1, "STEP=1");
  now += seconds(1);
  ledger.OnExit(0, true, now);
  now += seconds(2);
  ledger.OnExit(1, true, now);
  ledger.End(now);
  EXPECT_EQ(Seconds(TimeClass::kTraining), 4);
  EXPECT_EQ(Seconds(TimeClass::kWaiting), 2);
}

// Whatever happens, and whatever workers report, the classes add up to ranks x time.
TEST_F(RankLedgerTest, TheClassesAddUpToTheWhole) {
  for (unsigned seed = 1; seed <= 300; ++seed) {
    std::mt19937 random(seed);
    const auto up_to = [&random](int n) { return static_cast<int>(random() % (n + 1)); };
    const std::vector<std::string> reports = {"",
                                              "STEP=3",
                                              "STEP=2\nTIMES=data 3,start 1",
                                              "TIMES=training 1e9",
                                              "WAITS=",
                                              "DOING=evaluation",
                                              "TIMES=data 0.000001\nSTEP=9",
                                              "TIMES=\nDOING=waiting",
                                              "STEP=100",
                                              "SECTION=x",
                                              "TIMES=waiting 9,recovery 1",
                                              "WAITS=-",
                                              "WAITS=3 all_reduce - - 0"};
    ledger = RankLedger();
    RankTime::Time expected{0};
    RankTime before;
    int round = 0;
    int live = 0;  // ranks of the round that runs
    int last = 0;
    TimePoint ended{};
    for (int i = 0; i < 200; ++i) {
      const microseconds step(up_to(3'000'000));
      now += step;
      expected += live * step;
      switch (up_to(6)) {
        case 0:
          if (live == 0) {
            const int gap = up_to(1);
            round += 1 + gap;
            const int workers = 1 + up_to(3);
            if (gap == 0 && last > 0)
              expected += workers * std::chrono::duration_cast<microseconds>(now - ended);
            live = last = workers;
            Begin(round, live);
          }
          break;
        case 1:
          ledger.OnBroken(now);
          break;
        case 2:
          if (up_to(2) == 0 && live > 0) {
            ledger.End(now);
            ended = now;
            live = 0;
          }
          break;
        case 3:
          ledger.OnExit(up_to(4), up_to(1) == 0, now);
          break;
        default:
          Report(up_to(4), reports[static_cast<std::size_t>(up_to(12))]);
      }
      const RankTime& time = ledger.Take(now);
      ASSERT_LE(time.Sum(), expected) << "seed " << seed;
      for (std::size_t k = 0; k < kTimeClasses; ++k) ASSERT_GE(time.times[k], before.times[k]);
      before = time;
    }
    ledger.End(now);
    ASSERT_EQ(ledger.Take(now).Sum(), expected) << "seed " << seed;
  }
}

}  // namespace
}  // namespace ddprun
