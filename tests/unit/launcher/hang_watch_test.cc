// SPDX-License-Identifier: Apache-2.0
// Who hangs, since when, and which of several is the one that the others wait for.
#include "launcher/hang/hang_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "launcher/base/limits.h"
#include "rendezvous/base/limits.h"
#include "rendezvous/values/collectives.h"

namespace ddprun {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

ProgressMessage At(std::int64_t step, const std::string& section) {
  ProgressMessage message;
  message.step = step;
  message.section = section;
  return message;
}

// From a worker that reports only where it is among collectives.
ProgressMessage In(std::optional<std::int64_t> waits, std::int64_t last) {
  ProgressMessage message;
  message.goes_on = false;
  message.place.emplace();
  if (waits) message.place->waits = Collective{"0", *waits, "all_reduce"};
  message.place->last = {{"0", last, "all_reduce"}};
  return message;
}

// Two workers, and a clock that the test moves.
class HangWatchTest : public ::testing::Test {
 protected:
  void Begin(HangOptions options, int workers = 2) {
    watch_.emplace(options);
    watch_->Start(workers, now_);
  }
  // Looks whenever it is wanted. The first that is found.
  std::optional<HungWorker> Pass(Duration time) {
    const TimePoint end = now_ + time;
    while (watch_->NextLook().has_value() && *watch_->NextLook() <= end) {
      now_ = *watch_->NextLook();
      if (auto found = watch_->Look(now_)) return found;
    }
    now_ = end;
    return watch_->Look(now_);
  }
  // The agent does not run in that time.
  std::optional<HungWorker> Sleep(Duration time) {
    now_ += time;
    return watch_->Look(now_);
  }

  std::optional<HangWatch> watch_;
  TimePoint now_{seconds(1000)};
};

TEST_F(HangWatchTest, WhoeverTellsNothingIsNotWatchedAndWakesNobody) {
  Begin({.hang_timeout = seconds(10)});
  EXPECT_FALSE(watch_->NextLook().has_value());
  EXPECT_FALSE(Pass(std::chrono::hours(100)).has_value());
  watch_->OnProgress(0, At(1, "data"), now_);
  EXPECT_TRUE(watch_->NextLook().has_value());
}

TEST_F(HangWatchTest, EachRankIsReportedOnceOneReportsProgress) {
  Begin({.hang_timeout = seconds(30)});
  EXPECT_TRUE(watch_->Ranks().empty());
  watch_->OnProgress(1, ParseProgress("STEP=17\nLOSS=0.5\nGPU_MEMORY=4096\nSLOW=2\nSECTION=data"),
                     now_);
  watch_->OnExit(0);
  EXPECT_THAT(
      watch_->Ranks(),
      ::testing::ElementsAre(
          RankReport{.ended = true},
          RankReport{
              .step = 17, .loss = 0.5, .section = "data", .gpu_memory = 4096, .slowness = 2}));
  ASSERT_TRUE(Pass(seconds(40)).has_value());
  EXPECT_TRUE(watch_->Ranks()[1].hung);
}

TEST_F(HangWatchTest, WithoutALimitNobodyHangs) {
  Begin({.hang_timeout = seconds(0)});
  watch_->OnProgress(0, At(1, "data"), now_);
  EXPECT_FALSE(watch_->NextLook().has_value());
  EXPECT_FALSE(Pass(std::chrono::hours(100)).has_value());
}

TEST_F(HangWatchTest, OneThatStopsTellingIsNamedOnceWithWhereItIs) {
  Begin({.hang_timeout = seconds(10)}, 1);
  watch_->OnProgress(0, At(17, "data"), now_);
  EXPECT_FALSE(Pass(milliseconds(9'900)).has_value());
  const auto found = Pass(seconds(2));
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->local_rank, 0);
  EXPECT_EQ(found->hang.kind, HangKind::kNoProgress);
  EXPECT_EQ(found->hang.step, 17);
  EXPECT_EQ(found->hang.section, "data");
  EXPECT_GE(found->hang.silent, seconds(10));
  EXPECT_LE(found->hang.silent, seconds(11)) << "a tenth of the limit too much";
  EXPECT_FALSE(Pass(seconds(100)).has_value());
  watch_->OnProgress(0, {}, now_);
  EXPECT_FALSE(Pass(seconds(9)).has_value());
  EXPECT_TRUE(Pass(seconds(2)).has_value()) << "it went on, and hangs again";
}

TEST_F(HangWatchTest, AnyMessageIsASignOfLife) {
  Begin({.hang_timeout = seconds(10)}, 1);
  watch_->OnProgress(0, At(17, "checkpoint"), now_);
  for (int i = 0; i < 20; ++i) {
    EXPECT_FALSE(Pass(seconds(9)).has_value());
    watch_->OnProgress(0, {}, now_);
  }
  EXPECT_EQ(watch_->Summarize()->step, 17);
}

ProgressMessage Pause() {
  ProgressMessage message;
  message.pauses = true;
  return message;
}

TEST_F(HangWatchTest, SilenceThatWasAnnouncedIsNoHangUntilTheNextProgress) {
  Begin({.hang_timeout = seconds(10), .init_timeout = seconds(30)}, 1);
  watch_->OnProgress(0, At(17, "train"), now_);
  watch_->OnProgress(0, Pause(), now_);
  EXPECT_FALSE(Pass(std::chrono::hours(100)).has_value());
  EXPECT_EQ(watch_->Summarize()->step, 17);
  watch_->OnProgress(0, At(18, "train"), now_);
  EXPECT_FALSE(Pass(seconds(9)).has_value());
  EXPECT_TRUE(Pass(seconds(3)).has_value());
}

TEST_F(HangWatchTest, OneThatPausesIsNotInTheCollectiveFromBefore) {
  Begin({.hang_timeout = seconds(10)}, 1);
  watch_->OnProgress(0, In(5, 4), now_);
  watch_->OnProgress(0, At(17, "train"), now_);
  watch_->OnProgress(0, Pause(), now_);
  EXPECT_FALSE(Pass(seconds(100)).has_value());
  // The next one is watched like that of a worker which reports no progress.
  watch_->OnProgress(0, In(5, 4), now_);
  EXPECT_FALSE(Pass(seconds(9)).has_value());
  const auto found = Pass(seconds(3));
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->hang.section, "all_reduce 5");
  EXPECT_LE(found->hang.silent, seconds(11));
}

TEST_F(HangWatchTest, TheLastCollectiveOfOneThatPausesStaysKnown) {
  Begin({.hang_timeout = seconds(10)});
  watch_->OnProgress(0, In(5, 4), now_);
  watch_->OnProgress(1, In(std::nullopt, 4), now_);
  watch_->OnProgress(1, Pause(), now_);
  EXPECT_THAT(ToSentence(watch_->Places(0)),
              testing::StartsWith("rank 0 waits in all_reduce 5; rank 1 has not begun it"));
  watch_->OnProgress(1, At(17, "train"), now_);
  EXPECT_EQ(ToSentence(watch_->Places(0)),
            "rank 0 waits in all_reduce 5; rank 1 has reported no collective");
}

TEST_F(HangWatchTest, ThePausedOneIsToBlameOnlyIfItIsBehind) {
  for (const std::int64_t step : {17, 16}) {
    Begin({.hang_timeout = seconds(10)});
    watch_->OnProgress(0, At(step, "train"), now_);
    watch_->OnProgress(0, Pause(), now_);
    watch_->OnProgress(0, In(std::nullopt, 4), now_);
    watch_->OnProgress(1, At(17, "train"), now_);
    const auto found = Pass(seconds(12));
    ASSERT_TRUE(found.has_value());
    EXPECT_EQ(found->local_rank, step == 17 ? 1 : 0);
  }
}

TEST_F(HangWatchTest, TheOneInTheEarliestStepIsTheCause) {
  Begin({.hang_timeout = seconds(10)}, 3);
  watch_->OnProgress(0, At(18, "all_reduce"), now_);
  watch_->OnProgress(2, At(18, "all_reduce"), now_);
  Pass(milliseconds(1'500));
  watch_->OnProgress(1, At(17, "data"), now_);  // it hangs less long than the others
  const auto found = Pass(seconds(12));
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->local_rank, 1);
  EXPECT_EQ(found->hang.others_step, 18);
  EXPECT_FALSE(Pass(seconds(60)).has_value()) << "its victims are not named as well";
}

TEST_F(HangWatchTest, InOneStepTheOneThatWaitsForNobodyIsTheCause) {
  Begin({.hang_timeout = seconds(10)});
  watch_->OnProgress(0, At(18, "backward, all_reduce"), now_);
  watch_->OnProgress(1, At(18, "data"), now_);
  EXPECT_EQ(Pass(seconds(12))->local_rank, 1);
}

TEST_F(HangWatchTest, OneIsNamedOnceThoughOthersWaitForItSinceDifferentTimes) {
  Begin({.hang_timeout = seconds(10)}, 3);
  watch_->OnProgress(0, At(5, "all_reduce"), now_);
  now_ += seconds(1);
  watch_->OnProgress(1, At(5, "all_reduce"), now_);
  now_ += seconds(1);
  watch_->OnProgress(2, At(4, "data"), now_);
  const auto found = Pass(seconds(8));
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->local_rank, 2);
  EXPECT_FALSE(Pass(seconds(60)).has_value());
}

TEST_F(HangWatchTest, OneThatGoesOnIsNotBlamed) {
  Begin({.hang_timeout = seconds(10)});
  watch_->OnProgress(0, At(1, "data"), now_);
  watch_->OnProgress(1, At(18, "data"), now_);
  for (int i = 0; i < 4; ++i) {
    EXPECT_FALSE(Pass(milliseconds(2'400)).has_value());
    watch_->OnProgress(0, At(1, "data"), now_);
  }
  EXPECT_EQ(Pass(seconds(2))->local_rank, 1);
}

TEST_F(HangWatchTest, TheDeadDoNotHang) {
  Begin({.hang_timeout = seconds(10)});
  watch_->OnProgress(0, At(1, "data"), now_);
  watch_->OnProgress(1, At(1, "data"), now_);
  watch_->OnExit(0);
  EXPECT_EQ(Pass(seconds(11))->local_rank, 1);
  watch_->End();
  EXPECT_FALSE(watch_->NextLook().has_value());
}

TEST_F(HangWatchTest, OneThatHasEndedIsNeverNamed) {
  for (const HangOptions& options :
       {HangOptions{.hang_timeout = seconds(10)}, HangOptions{.init_timeout = seconds(10)},
        HangOptions{.heartbeat_timeout = seconds(10)}}) {
    Begin(options, 1);
    if (options.hang_timeout.count() > 0) watch_->OnProgress(0, At(1, "data"), now_);
    watch_->OnExit(0);
    EXPECT_FALSE(Pass(std::chrono::hours(1)).has_value());
  }
}

TEST_F(HangWatchTest, WithAnInitTimeoutTheFirstWordIsWaitedFor) {
  Begin({.hang_timeout = seconds(10), .init_timeout = seconds(60)});
  watch_->OnProgress(0, At(1, "data"), now_);
  for (int i = 0; i < 11; ++i) {
    EXPECT_FALSE(Pass(seconds(5)).has_value());
    watch_->OnProgress(0, {}, now_);
  }
  const auto found = Pass(seconds(6));
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->local_rank, 1);
  EXPECT_EQ(found->hang.kind, HangKind::kNoStart);
  EXPECT_EQ(found->hang.step, -1);
}

TEST_F(HangWatchTest, OutputIsASignOfLifeOnlyWhereItIsAskedFor) {
  Begin({.heartbeat_timeout = seconds(10)}, 1);
  for (int i = 0; i < 5; ++i) {
    EXPECT_FALSE(Pass(seconds(9)).has_value());
    watch_->OnOutput(0, now_);
  }
  for (int i = 0; i < 5; ++i) {
    EXPECT_FALSE(Pass(seconds(9)).has_value());
    watch_->OnProgress(0, At(i, "quiet"), now_);
  }
  const auto found = Pass(seconds(11));
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->hang.kind, HangKind::kNoOutput);

  Begin({.hang_timeout = seconds(10)}, 1);
  watch_->OnProgress(0, At(1, "data"), now_);
  Pass(seconds(8));
  watch_->OnOutput(0, now_);
  EXPECT_TRUE(Pass(seconds(3)).has_value()) << "a thread that writes may not be the one that works";
}

TEST_F(HangWatchTest, TimeInWhichTheAgentItselfDidNotRunCountsAgainstNobody) {
  Begin({.hang_timeout = seconds(10), .heartbeat_timeout = seconds(10)}, 1);
  watch_->OnProgress(0, At(1, "data"), now_);
  Pass(seconds(5));
  EXPECT_FALSE(Sleep(std::chrono::hours(8)).has_value());
  EXPECT_FALSE(Pass(milliseconds(3'900)).has_value());
  EXPECT_TRUE(Pass(seconds(3)).has_value());
}

// The kinds of silence each: a laptop that slept blames nobody, and excuses nobody for longer.
TEST_F(HangWatchTest, AfterASuspensionSilenceGoesOnFromWhereItWas) {
  struct Case {
    const char* name;
    HangOptions options;
    std::function<void()> says;  // what the last sign of life is
  };
  const Case cases[] = {
      {"progress",
       {.hang_timeout = seconds(10)},
       [&] { watch_->OnProgress(0, At(1, "data"), now_); }},
      {"output", {.heartbeat_timeout = seconds(10)}, [&] { watch_->OnOutput(0, now_); }},
      {"place", {.hang_timeout = seconds(10)}, [&] { watch_->OnProgress(0, In(57, 56), now_); }},
      {"start", {.init_timeout = seconds(18)}, [] {}},
  };
  for (const Case& one : cases) {
    SCOPED_TRACE(one.name);
    Begin(one.options, 1);
    EXPECT_FALSE(Pass(seconds(8)).has_value());
    one.says();
    EXPECT_FALSE(Pass(seconds(5)).has_value());
    EXPECT_FALSE(Sleep(std::chrono::hours(8)).has_value());
    EXPECT_FALSE(Pass(milliseconds(3'900)).has_value());
    const auto found = Pass(seconds(3));
    ASSERT_TRUE(found.has_value());
    EXPECT_LE(found->hang.silent, seconds(20)) << "the suspension was counted";
  }
}

// A message that is read before the agent looks at the clock again.
TEST_F(HangWatchTest, ASignOfLifeRightAfterASuspensionIsNotMovedToTheFuture) {
  const auto after_sleep = [this](HangOptions options, const std::function<void()>& says) {
    Begin(options, 1);
    says();
    Pass(seconds(5));
    now_ += std::chrono::hours(8);
    says();
    EXPECT_FALSE(watch_->Look(now_).has_value());
    EXPECT_FALSE(Pass(milliseconds(9'900)).has_value());
    EXPECT_TRUE(Pass(seconds(2)).has_value());
  };
  std::int64_t number = 0;
  after_sleep({.hang_timeout = seconds(10)},
              [&] { watch_->OnProgress(0, At(++number, "data"), now_); });
  after_sleep({.heartbeat_timeout = seconds(10)}, [&] { watch_->OnOutput(0, now_); });
  after_sleep({.hang_timeout = seconds(10)}, [&] {
    ++number;
    watch_->OnProgress(0, In(number, number - 1), now_);
  });
}

// Whichever way it hangs, and whichever sign of life it gives.
TEST_F(HangWatchTest, OneThatGoesOnAndHangsAgainIsNamedAgain) {
  const auto twice = [this](HangOptions options, const std::function<void()>& says) {
    Begin(options, 1);
    says();
    for (int time = 0; time < 3; ++time) {
      EXPECT_TRUE(Pass(seconds(12)).has_value()) << time;
      EXPECT_FALSE(Pass(seconds(12)).has_value()) << "named twice";
      says();
      EXPECT_FALSE(Pass(seconds(9)).has_value()) << time;
    }
  };
  std::int64_t number = 0;
  twice({.hang_timeout = seconds(10)}, [&] { watch_->OnProgress(0, At(++number, "data"), now_); });
  twice({.heartbeat_timeout = seconds(10)}, [&] { watch_->OnOutput(0, now_); });
  twice({.heartbeat_timeout = seconds(10)},
        [&] { watch_->OnProgress(0, At(++number, "quiet"), now_); });
  twice({.hang_timeout = seconds(10)}, [&] {
    ++number;
    watch_->OnProgress(0, In(number, number - 1), now_);
  });
}

TEST_F(HangWatchTest, ALookThatIsLateByLittleIsNoExcuse) {
  Begin({.hang_timeout = seconds(10)}, 1);
  watch_->OnProgress(0, At(1, "data"), now_);
  std::optional<HungWorker> found;
  for (int i = 0; i < 6 && !found; ++i) found = Sleep(kHangLateMax);
  EXPECT_TRUE(found.has_value());
}

TEST_F(HangWatchTest, OfWorkersThatAnotherNodeMissesTheFurthestBehind) {
  Begin({}, 3);
  watch_->OnProgress(0, At(18, "all_reduce"), now_);
  watch_->OnProgress(1, At(17, "all_reduce"), now_);
  Pass(seconds(4));
  watch_->OnProgress(2, At(3, "data"), now_);
  EXPECT_FALSE(watch_->FindSilent(seconds(5), now_).has_value());
  EXPECT_EQ(watch_->FindSilent(seconds(3), now_)->local_rank, 1);
}

ProgressMessage WaitsIn(std::int64_t number) {
  return ParseProgress("WAITS=" + std::to_string(number) + " all_reduce 4 float32 0\nLAST=" +
                       std::to_string(number - 1) + " all_reduce 0");
}

TEST_F(HangWatchTest, WhereItWaitsIsNoSignOfLife) {
  Begin({.hang_timeout = seconds(10)}, 1);
  watch_->OnProgress(0, At(17, "all_reduce"), now_);
  Pass(seconds(9));
  watch_->OnProgress(0, WaitsIn(57), now_);
  EXPECT_TRUE(Pass(seconds(2)).has_value());
}

TEST_F(HangWatchTest, OfTwoInOneSectionTheOneThatHasNotBegunTheOthersCollectiveIsBehind) {
  Begin({.hang_timeout = seconds(10)}, 3);
  for (const int rank : {0, 1, 2}) watch_->OnProgress(rank, At(17, "all_reduce"), now_);
  Pass(seconds(1));
  watch_->OnProgress(0, WaitsIn(57), now_);
  watch_->OnProgress(1, ParseProgress("WAITS=\nLAST=56 all_reduce 0"), now_);
  watch_->OnProgress(2, WaitsIn(57), now_);
  const auto found = Pass(seconds(20));
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->local_rank, 1);
  const std::vector<RanksInPlace> places = watch_->Places(/*rank_first=*/8);
  ASSERT_EQ(places.size(), 2u);
  EXPECT_EQ(places[0].ranks, (std::vector<RankRange>{{8, 8}, {10, 10}}));
  EXPECT_EQ(places[0].place, *WaitsIn(57).place);
  EXPECT_EQ(places[1].ranks, (std::vector<RankRange>{{9, 9}}));
}

TEST_F(HangWatchTest, PlacesAreThoseOfWhoHasNotGoneOnSince) {
  Begin({.hang_timeout = seconds(10)}, 4);
  for (const int rank : {0, 1, 2, 3}) watch_->OnProgress(rank, At(17, "all_reduce"), now_);
  EXPECT_TRUE(watch_->Places(0).empty());
  watch_->OnProgress(0, WaitsIn(57), now_);
  watch_->OnProgress(1, WaitsIn(57), now_);
  watch_->OnProgress(2, WaitsIn(57), now_);
  watch_->OnExit(0);  // its collective's time was over
  watch_->OnExit(3);
  watch_->OnProgress(2, At(18, "data"), now_);
  const std::vector<RanksInPlace> places = watch_->Places(0);
  ASSERT_EQ(places.size(), 2u);
  EXPECT_EQ(places[0].ranks, (std::vector<RankRange>{{0, 1}}));
  EXPECT_EQ(places[1].ranks, (std::vector<RankRange>{{2, 2}})) << "it lives, and does not wait";
  EXPECT_EQ(places[1].place, CollectivePlace{});
  watch_->OnProgress(1, At(18, "data"), now_);
  watch_->OnProgress(0, At(18, "data"), now_);
  EXPECT_TRUE(watch_->Places(0).empty()) << "nobody waits any more";
}

TEST_F(HangWatchTest, OneThatWasFoundMayGoOn) {
  Begin({.hang_timeout = seconds(10), .heartbeat_timeout = seconds(30)}, 1);
  watch_->OnProgress(0, At(17, "data"), now_);
  const auto found = Pass(seconds(12));
  ASSERT_TRUE(found.has_value());
  EXPECT_TRUE(watch_->StillHangs(*found));
  watch_->OnOutput(0, now_);
  EXPECT_TRUE(watch_->StillHangs(*found)) << "another thread writes";
  EXPECT_FALSE(Pass(seconds(15)).has_value()) << "and it is not named again for that";
  watch_->OnProgress(0, {}, now_);
  EXPECT_FALSE(watch_->StillHangs(*found));
}

TEST_F(HangWatchTest, ANodeIsAsFarAsItsSlowestWorkerAndAsFastAsAll) {
  Begin({});
  EXPECT_FALSE(watch_->Summarize().has_value());
  ProgressMessage first = At(18, "all_reduce");
  first.rate = 100;
  first.unit = "images";
  ProgressMessage second = At(17, "data");
  second.rate = 50;
  second.unit = "images";
  second.epoch = 2;
  watch_->OnProgress(0, first, now_);
  watch_->OnProgress(1, second, now_);
  EXPECT_EQ(*watch_->Summarize(), (Progress{17, 2, 150, "images", "data"}));
}

// ---- Workers that report only where they are among collectives

TEST_F(HangWatchTest, TheOneThatTheOthersWaitForIsNamedThoughItReportsNoProgress) {
  Begin({.hang_timeout = seconds(10)}, 3);
  EXPECT_FALSE(watch_->NextLook().has_value());
  for (const int rank : {0, 2}) watch_->OnProgress(rank, In(57, 56), now_);
  watch_->OnProgress(1, In(std::nullopt, 56), now_);
  EXPECT_FALSE(Pass(seconds(9)).has_value());
  const auto found = Pass(seconds(2));
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->local_rank, 1);
  EXPECT_EQ(found->hang.kind, HangKind::kNoProgress);
  EXPECT_EQ(found->hang.section, "");
  EXPECT_TRUE(watch_->StillHangs(*found));
  watch_->OnProgress(1, In(57, 56), now_);
  EXPECT_FALSE(watch_->StillHangs(*found));
}

TEST_F(HangWatchTest, OneThatWaitsForWorkersOfOtherNodesIsNamedWithItsCollective) {
  Begin({.hang_timeout = seconds(10)}, 2);
  for (const int rank : {0, 1}) watch_->OnProgress(rank, In(57, 56), now_);
  const auto found = Pass(seconds(11));
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->hang.section, "all_reduce 57");
}

TEST_F(HangWatchTest, WorkersThatComputeForLongDoNotHangUnlessOneWaitsForThem) {
  Begin({.hang_timeout = seconds(10)}, 2);
  for (const int rank : {0, 1}) watch_->OnProgress(rank, In(std::nullopt, 56), now_);
  EXPECT_FALSE(Pass(std::chrono::hours(1)).has_value());
  const std::vector<RanksInPlace> places = watch_->PlacesBesideOthers(4);
  ASSERT_EQ(places.size(), 1u);
  EXPECT_EQ(places[0].ranks, (std::vector<RankRange>{{4, 5}}));
  EXPECT_TRUE(watch_->Places(4).empty());
}

TEST_F(HangWatchTest, AnotherPlaceIsProgressAndThatItMovesOnEndsTheOld) {
  Begin({.hang_timeout = seconds(10)}, 1);
  for (int step = 0; step < 5; ++step) {
    watch_->OnProgress(0, In(step + 1, step), now_);
    EXPECT_FALSE(Pass(seconds(8)).has_value());
  }
  ProgressMessage reads_notices;
  reads_notices.goes_on = false;
  reads_notices.hears_notices = true;
  watch_->OnProgress(0, reads_notices, now_);
  EXPECT_FALSE(watch_->PlacesBesideOthers(0).empty());
  ProgressMessage moves;
  moves.goes_on = false;
  moves.moves_on = true;
  watch_->OnProgress(0, moves, now_);
  EXPECT_TRUE(watch_->PlacesBesideOthers(0).empty());
  EXPECT_FALSE(Pass(std::chrono::hours(1)).has_value());
}

// ---- Workers that report nothing, and whose flight recorder was read

CollectivePlace WaitingIn(std::int64_t number) {
  return {.waits = Collective{"0", number, "all_reduce"}, .last = {}};
}

TEST_F(HangWatchTest, ADumpIsAPlaceAndNoProgress) {
  Begin({.heartbeat_timeout = seconds(10)}, 3);
  const std::optional<HungWorker> found = Pass(seconds(11));
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(watch_->WithoutPlace(), (std::vector<int>{0, 1, 2}));
  watch_->SetDumped(0, WaitingIn(4));
  watch_->SetDumped(1, {.waits = {}, .last = {{"0", 3, "all_reduce"}}});
  watch_->SetDumped(7, WaitingIn(4));
  EXPECT_TRUE(watch_->StillHangs(*found));
  ASSERT_EQ(watch_->Places(0).size(), 3u);
  EXPECT_EQ(watch_->PlacesBesideOthers(0).size(), 2u);
  // What it says itself counts more.
  watch_->OnProgress(0, WaitsIn(5), now_);
  EXPECT_EQ(watch_->WithoutPlace(), (std::vector<int>{1, 2}));
  EXPECT_EQ(watch_->Places(0).front().place, *WaitsIn(5).place);
}

TEST_F(HangWatchTest, OfSilentOnesThatWhichTheOthersWaitForIsToBlame) {
  Begin({.heartbeat_timeout = seconds(10)}, 4);
  const std::optional<HungWorker> found = Pass(seconds(11));
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(watch_->Blame(*found, now_).local_rank, 0);
  watch_->SetDumped(0, WaitingIn(4));
  watch_->SetDumped(1, WaitingIn(3));
  watch_->SetDumped(2, {.waits = {}, .last = {{"0", 3, "all_reduce"}}});
  const HungWorker blamed = watch_->Blame(*found, now_);
  EXPECT_EQ(blamed.local_rank, 1);
  EXPECT_EQ(blamed.hang.kind, HangKind::kNoOutput);
  EXPECT_GE(blamed.hang.silent, seconds(10));
  watch_->SetDumped(1, WaitingIn(4));
  EXPECT_EQ(watch_->Blame(*found, now_).local_rank, 2);
  watch_->OnOutput(2, now_);  // it goes on
  EXPECT_EQ(watch_->Blame(*found, now_).local_rank, 0);
}

TEST_F(HangWatchTest, AWorkerIsStillOnceItHasBeenAtOnePlaceForAWhile) {
  Begin({});
  watch_->OnProgress(0, In(11, 10), now_);
  watch_->OnProgress(1, In({}, 10), now_);
  EXPECT_TRUE(watch_->StillPlaces(0, now_).empty());
  EXPECT_EQ(watch_->NextStill(now_), now_ + kStillTime);
  now_ += kStillTime;
  EXPECT_EQ(watch_->StillPlaces(4, now_).size(), 2u);
  EXPECT_FALSE(watch_->NextStill(now_));
  watch_->OnProgress(0, In(12, 11), now_);
  watch_->OnExit(0);
  EXPECT_EQ(watch_->StillPlaces(4, now_).size(), 2u) << "it has ended, and others may wait for it";
  watch_->OnProgress(1, {}, now_);
  EXPECT_EQ(watch_->StillPlaces(4, now_).size(), 1u) << "it goes on";
}

}  // namespace
}  // namespace ddprun
