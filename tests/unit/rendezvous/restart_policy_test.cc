// SPDX-License-Identifier: Apache-2.0
// Each rule of what follows a failure, by itself.
#include "rendezvous/membership/restart_policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

#include "absl/strings/str_cat.h"
#include "rendezvous/base/limits.h"

namespace ddprun {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;

constexpr TimePoint kStart{std::chrono::hours(5)};

Failure Exit(int code, const std::string& host = "b") {
  Failure failure;
  failure.kind = FailureKind::kWorkerExited;
  failure.host = host;
  failure.exit_code = code;
  return failure;
}
Failure Signal(int signal) {
  Failure failure = Exit(0);
  failure.kind = FailureKind::kWorkerSignaled;
  failure.signal = signal;
  return failure;
}
Failure OfKind(FailureKind kind) {
  Failure failure = Exit(0);
  failure.kind = kind;
  return failure;
}

// ---- The budget

TEST(RestartBudgetTest, WithoutAWindowAllRestartsCount) {
  const RestartPolicy policy;
  RestartHistory history;
  TimePoint now = kStart;
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(WhyNoRestart(history, policy, 3, Exit(1), now), std::nullopt) << i;
    CountRestart(history, policy, now);
    now += std::chrono::hours(100);
  }
  EXPECT_EQ(RestartsUsed(history, policy, now), 3);
  EXPECT_EQ(WhyNoRestart(history, policy, 3, Exit(1), now), "") << "the numbers say it";
  EXPECT_TRUE(history.times.empty()) << "nothing to be kept";
}

TEST(RestartBudgetTest, OnlyRestartsWithinTheWindowCount) {
  const RestartPolicy policy{.window = seconds(60)};
  RestartHistory history;
  CountRestart(history, policy, kStart);
  CountRestart(history, policy, kStart + seconds(50));
  const auto why = WhyNoRestart(history, policy, 2, Exit(1), kStart + milliseconds(59'999));
  EXPECT_EQ(why, "--max-restarts 2 are used up within 60 s (--restart-window)");
  EXPECT_EQ(WhyNoRestart(history, policy, 2, Exit(1), kStart + seconds(60)), std::nullopt);
  EXPECT_EQ(RestartsUsed(history, policy, kStart + seconds(60)), 1);
  CountRestart(history, policy, kStart + seconds(60));
  EXPECT_EQ(history.used, 2);
  EXPECT_EQ(history.times.size(), 2u) << "what is too old is not kept";
}

TEST(RestartBudgetTest, ARoundThatRanLongGivesAllBack) {
  const RestartPolicy policy{.window = std::chrono::hours(1), .reset = seconds(10)};
  RestartHistory history;
  CountRestart(history, policy, kStart);
  EndRound(history, policy, Exit(1), milliseconds(9'999));
  EXPECT_EQ(RestartsUsed(history, policy, kStart), 1);
  EndRound(history, policy, Exit(1), seconds(10));
  EXPECT_EQ(RestartsUsed(history, policy, kStart), 0);
  EXPECT_EQ(history.no_progress, 0);
}

TEST(RestartBudgetTest, WithoutTheFlagNoRoundGivesAnythingBack) {
  RestartHistory history;
  CountRestart(history, {}, kStart);
  Progressed(history, 1'000'000);
  EndRound(history, {}, Exit(1), std::chrono::hours(24 * 365));
  EXPECT_EQ(RestartsUsed(history, {}, kStart), 1);
}

TEST(ProgressTest, ARoundThatGotFurtherThanAnyBeforeGivesAllBack) {
  const RestartPolicy policy{.no_progress_max = 3};
  RestartHistory history;
  const auto round = [&](std::initializer_list<std::int64_t> steps) {
    for (const std::int64_t step : steps) Progressed(history, step);
    EndRound(history, policy, Exit(1), seconds(1));
    CountRestart(history, policy, kStart);
  };
  round({0, 5, 10, 7});
  EXPECT_EQ(history.no_progress, 0);
  EXPECT_EQ(history.used, 1);
  round({9, 10});
  EXPECT_EQ(history.no_progress, 1) << "as far as before is not further";
  round({});
  EXPECT_EQ(history.no_progress, 2);
  EXPECT_EQ(history.used, 3);
  round({11});
  EXPECT_EQ(history.no_progress, 0);
  EXPECT_EQ(history.used, 1);
  EXPECT_EQ(history.step_before, 11);
}

TEST(ProgressTest, RoundsWithoutProgressEndTheRunEarly) {
  const RestartPolicy policy{.no_progress_max = 3};
  RestartHistory history;
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(WhyNoRestart(history, policy, 100, Exit(1), kStart), std::nullopt);
    EndRound(history, policy, Exit(1), std::chrono::hours(1));
  }
  EXPECT_EQ(WhyNoRestart(history, policy, 100, Exit(1), kStart),
            "3 rounds in a row have made no progress (--no-progress-restarts 3)");
}

TEST(ProgressTest, WhatRanLongHasMadeProgressForThoseWhoReportNone) {
  const RestartPolicy policy{.reset = seconds(60), .no_progress_max = 1};
  RestartHistory history;
  EndRound(history, policy, Exit(1), seconds(60));
  EXPECT_EQ(WhyNoRestart(history, policy, 1, Exit(1), kStart), std::nullopt);
  EndRound(history, policy, Exit(1), seconds(59));
  EXPECT_THAT(*WhyNoRestart(history, policy, 1, Exit(1), kStart), HasSubstr("1 round has made"));
}

TEST(ProgressTest, ANodeThatLeavesAsItWasAskedToIsNoFailure) {
  const RestartPolicy policy{
      .no_progress_max = 1, .never_codes = {{1, 255}}, .node_failures_max = 1};
  const Failure drained = OfKind(FailureKind::kNodeDrained);
  RestartHistory history;
  EndRound(history, policy, drained, seconds(1));
  EXPECT_EQ(history.no_progress, 0);
  EXPECT_EQ(WhyNoRestart(history, policy, 0, drained, kStart), std::nullopt) << "none is needed";
  EXPECT_FALSE(WouldLeaveOut(history, policy, drained, kStart));
}

TEST(RestartDelayTest, DoublesUpToItsMost) {
  const RestartPolicy policy{.delay = seconds(2), .delay_max = seconds(7)};
  RestartHistory history;
  for (const int expected : {2, 4, 7, 7}) {
    CountRestart(history, policy, kStart);
    EXPECT_EQ(RestartDelay(history, policy), seconds(expected));
  }
  EXPECT_EQ(RestartDelay(history, {.delay = seconds(3)}), seconds(3)) << "the same each time";
  EXPECT_EQ(RestartDelay(history, {}), seconds(0));
  history.used = 1'000'000'000;
  EXPECT_EQ(RestartDelay(history, policy), seconds(7));
}

// ---- Exit codes

TEST(ExitCodesTest, SomeAreNotWorthARestart) {
  const RestartPolicy policy{.never_codes = {{2, 2}, {77, 80}, {139, 139}}};
  const auto worth = [&](const Failure& cause) {
    return !WhyNoRestart({}, policy, 1, cause, kStart).has_value();
  };
  EXPECT_FALSE(worth(Exit(2)));
  EXPECT_FALSE(worth(Exit(77)));
  EXPECT_FALSE(worth(Exit(80)));
  EXPECT_FALSE(worth(Signal(SIGSEGV)));
  EXPECT_FALSE(worth(Exit(139))) << "as a shell around the worker has it";
  EXPECT_TRUE(worth(Exit(1)));
  EXPECT_TRUE(worth(Exit(76)));
  EXPECT_TRUE(worth(Exit(81)));
  EXPECT_TRUE(worth(Signal(SIGKILL)));
  EXPECT_EQ(WhyNoRestart({}, policy, 1, Signal(SIGSEGV), kStart),
            "SIGSEGV is not worth another try (--no-restart-exit-codes 2,77-80,SIGSEGV)");
}

TEST(ExitCodesTest, OrOnlySomeAre) {
  const RestartPolicy policy{.only_codes = {{75, 75}}};
  EXPECT_EQ(WhyNoRestart({}, policy, 1, Exit(75), kStart), std::nullopt);
  EXPECT_EQ(WhyNoRestart({}, policy, 1, Exit(1), kStart),
            "exit code 1 is none that is worth another try (--restart-exit-codes 75)");
}

TEST(ExitCodesTest, SayNothingOfWhatIsNoWorkersEnd) {
  const RestartPolicy policy{.never_codes = {{1, 255}}};
  const RestartPolicy only{.only_codes = {{75, 75}}};
  for (const FailureKind kind : {FailureKind::kNodeLost, FailureKind::kNodeInterrupted}) {
    EXPECT_EQ(WhyNoRestart({}, policy, 1, OfKind(kind), kStart), std::nullopt);
    EXPECT_EQ(WhyNoRestart({}, only, 1, OfKind(kind), kStart), std::nullopt);
  }
  Failure unspawned = OfKind(FailureKind::kSpawnFailed);
  unspawned.exit_code = 127;
  EXPECT_TRUE(WhyNoRestart({}, policy, 1, unspawned, kStart).has_value());
}

TEST(ExitCodesTest, WhereNoRestartWasAskedForNothingIsSaid) {
  EXPECT_EQ(WhyNoRestart({}, {.never_codes = {{2, 2}}}, 0, Exit(2), kStart), "");
}

// ---- Nodes that fail again and again

TEST(LeftOutTest, TheHostThatFailsTooOftenGoes) {
  const RestartPolicy policy{.node_failures_max = 2};
  RestartHistory history;
  EXPECT_FALSE(CountFailure(history, policy, Exit(1, "a"), kStart, kStart));
  EXPECT_FALSE(CountFailure(history, policy, Exit(1, "b"), kStart, kStart));
  EXPECT_EQ(FindLeftOut(history, policy, "b", kStart), nullptr);
  EXPECT_TRUE(WouldLeaveOut(history, policy, Exit(9, "b"), kStart));
  EXPECT_TRUE(CountFailure(history, policy, Exit(9, "b"), kStart, kStart));
  ASSERT_NE(FindLeftOut(history, policy, "b", kStart + std::chrono::hours(1000)), nullptr);
  EXPECT_EQ(FindLeftOut(history, policy, "b", kStart)->exit_code, 9);
  EXPECT_EQ(FindLeftOut(history, policy, "a", kStart), nullptr);
  EXPECT_EQ(LeftOutWords(policy, "b"),
            "node b is left out after 2 failures (--node-failures-max 2)");
}

TEST(LeftOutTest, ComesBackAfterItsCoolDownAndStartsAnew) {
  const RestartPolicy policy{.node_failures_max = 1, .node_cooldown = seconds(30)};
  RestartHistory history;
  EXPECT_TRUE(CountFailure(history, policy, Exit(1), kStart, kStart + seconds(5)));
  EXPECT_NE(FindLeftOut(history, policy, "b", kStart + milliseconds(34'999)), nullptr);
  EXPECT_EQ(FindLeftOut(history, policy, "b", kStart + seconds(35)), nullptr);
  ForgiveLeftOut(history, "b");
  EXPECT_TRUE(history.hosts.empty());
}

TEST(LeftOutTest, OldFailuresDoNotCountWithAWindow) {
  const RestartPolicy policy{.window = seconds(60), .node_failures_max = 2};
  RestartHistory history;
  EXPECT_FALSE(CountFailure(history, policy, Exit(1), kStart, kStart));
  EXPECT_FALSE(WouldLeaveOut(history, policy, Exit(1), kStart + seconds(60)));
  EXPECT_TRUE(WouldLeaveOut(history, policy, Exit(1), kStart + seconds(59)));
}

TEST(LeftOutTest, WhoWasToldToLeaveHasNotFailed) {
  const RestartPolicy policy{.node_failures_max = 1};
  EXPECT_FALSE(WouldLeaveOut({}, policy, OfKind(FailureKind::kNodeInterrupted), kStart));
  EXPECT_FALSE(WouldLeaveOut({}, policy, OfKind(FailureKind::kJoinTimeout), kStart));
  EXPECT_TRUE(WouldLeaveOut({}, policy, OfKind(FailureKind::kNodeLost), kStart));
  EXPECT_FALSE(WouldLeaveOut({}, {}, OfKind(FailureKind::kNodeLost), kStart)) << "without the flag";
}

TEST(LeftOutTest, HostsAreCountedUpToALimit) {
  const RestartPolicy policy{.node_failures_max = 2};
  RestartHistory history;
  EXPECT_FALSE(CountFailure(history, policy, Exit(1, "bad"), kStart, kStart));
  EXPECT_TRUE(CountFailure(history, policy, Exit(1, "bad"), kStart, kStart));
  for (std::size_t i = 0; i < kFailedHostsMax + 10; ++i) {
    const TimePoint now = kStart + seconds(1 + i);
    CountFailure(history, policy, Exit(1, absl::StrCat("h", i)), now, now);
  }
  EXPECT_EQ(history.hosts.size(), kFailedHostsMax);
  EXPECT_FALSE(history.hosts.contains("h0")) << "the oldest goes";
  EXPECT_NE(FindLeftOut(history, policy, "bad", kStart), nullptr) << "but not who is left out";
}

// ---- Words and ranges

TEST(PolicyWordsTest, ADisagreementIsNamedAsItWasWritten) {
  const auto difference = [](RestartPolicy a, RestartPolicy b) {
    const auto differs = FindDifference(a, b);
    return differs ? absl::StrCat(differs->flag, ": ", differs->a, " | ", differs->b) : "none";
  };
  EXPECT_EQ(difference({}, {}), "none");
  EXPECT_EQ(difference({.window = seconds(60)}, {}),
            "--restart-window: --restart-window 60 | no --restart-window");
  EXPECT_EQ(difference({.never_codes = {{2, 2}, {130, 143}}}, {}),
            "--no-restart-exit-codes: --no-restart-exit-codes 2,SIGINT-SIGTERM | "
            "--no-restart-exit-codes none");
  EXPECT_EQ(difference({.delay = seconds(1), .delay_max = seconds(2)}, {.delay = seconds(1)}),
            "--restart-delay: --restart-delay 1:2 | --restart-delay 1");
  const RestartPolicy others[] = {{.reset = seconds(1)},
                                  {.no_progress_max = 1},
                                  {.only_codes = {{1, 1}}},
                                  {.node_failures_max = 1},
                                  {.node_cooldown = seconds(1)}};
  for (const RestartPolicy& other : others) EXPECT_NE(difference({}, other), "none");
}

TEST(PolicyRangeTest, WhatIsOutOfRangeIsRefused) {
  EXPECT_TRUE(CheckPolicy({}, 1'000'000'000).ok());
  EXPECT_TRUE(CheckPolicy({.never_codes = {{1, 255}}}, 0).ok());
  const RestartPolicy wrong[] = {
      {.window = milliseconds(-1)},
      {.reset = kRestartTimeMax + milliseconds(1)},
      {.no_progress_max = -1},
      {.never_codes = {{0, 1}}},
      {.never_codes = {{3, 2}}},
      {.only_codes = {{1, 256}}},
      {.only_codes = std::vector<ExitCodeRange>(kExitCodeRangesMax + 1, {1, 1})},
      {.node_failures_max = kNodeFailuresMax + 1},
      {.node_cooldown = milliseconds(-5)},
      {.delay = kRestartDelayMax + milliseconds(1)},
      {.delay_max = milliseconds(-1)},
  };
  for (const RestartPolicy& policy : wrong) EXPECT_FALSE(CheckPolicy(policy, 0).ok());
  const RestartPolicy windowed{.window = seconds(1)};
  EXPECT_TRUE(CheckPolicy(windowed, kWindowRestartsMax).ok());
  EXPECT_FALSE(CheckPolicy(windowed, kWindowRestartsMax + 1).ok());
}

}  // namespace
}  // namespace ddprun
