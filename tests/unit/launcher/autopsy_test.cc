// SPDX-License-Identifier: Apache-2.0
// When the end of a worker is reported, and with which evidence.
#include "launcher/workers/autopsy.h"

#include <gtest/gtest.h>

#include <csignal>

#include "launcher/base/limits.h"

namespace ddprun {
namespace {

using std::chrono::milliseconds;

ProgressMessage WaitsIn(std::int64_t collective) {
  ProgressMessage message;
  message.goes_on = false;
  message.place.emplace();
  message.place->waits = Collective{"0", collective, "all_reduce"};
  return message;
}

CollectivePlace HasDone(std::int64_t collective) {
  return {.waits = {}, .last = {{"0", collective, "all_reduce"}}};
}

template <typename Effect>
std::vector<Effect> Those(const std::vector<AutopsyEffect>& effects) {
  std::vector<Effect> found;
  for (const AutopsyEffect& effect : effects) {
    if (const auto* one = std::get_if<Effect>(&effect)) found.push_back(*one);
  }
  return found;
}

// Three workers, ranks 4 to 6, of which two still run.
class AutopsyTest : public ::testing::Test {
 protected:
  void SetUp() override {
    places_.Start(3, now_);
    autopsy_.BeginRound(4);
    // All have said where they are: no dump is wanted.
    for (int i = 0; i < 3; ++i) Say(i, HasDone(7));
  }
  void Say(int local_rank, CollectivePlace place) {
    ProgressMessage message;
    message.goes_on = false;
    message.place = std::move(place);
    places_.OnProgress(local_rank, message, now_);
  }
  std::vector<AutopsyEffect> Step(AutopsyEvent event) {
    return autopsy_.Step(std::move(event), peers_, now_);
  }
  static EndSeen End(int local_rank, Outcome outcome) {
    EndSeen seen;
    seen.ended.local_rank = local_rank;
    seen.ended.outcome = outcome;
    seen.ended.pid = 100 + local_rank;
    seen.watches_collectives = true;
    seen.question = {.record_file = "record",
                     .pid = seen.ended.pid,
                     .core_of_start = std::chrono::system_clock::time_point(),
                     .cpu_seconds = {}};
    return seen;
  }
  EndSeen EndInCollective(int local_rank, std::int64_t collective = 8) {
    EndSeen seen = End(local_rank, Exited{1});
    seen.message = WaitsIn(collective);
    return seen;
  }
  static std::vector<WorkerEnded> Ends(const std::vector<AutopsyEffect>& effects) {
    std::vector<WorkerEnded> ends;
    for (const ReportEvent& report : Those<ReportEvent>(effects)) {
      if (const auto* ended = std::get_if<WorkerEnded>(&report.event)) ends.push_back(*ended);
    }
    return ends;
  }
  // The evidence of the n-th end is there.
  std::vector<AutopsyEffect> Read(int end, const std::string& message = "") {
    EvidenceRead read{.end = end, .evidence = {}};
    read.evidence.record.message = message;
    read.evidence.record_bytes = "bytes";
    read.evidence.core_file = "/core";
    return Step(std::move(read));
  }
  std::vector<AutopsyEffect> Pass(Duration time) {
    now_ += time;
    return Step(TimePassed{});
  }

  TimePoint now_{std::chrono::hours(1)};
  Autopsy::Peers peers_{.any_runs = true};
  HangWatch places_{HangOptions{}};
  Autopsy autopsy_{places_};
};

TEST_F(AutopsyTest, ASuccessIsReportedAtOnceWithWhereItWas) {
  const auto effects = Step(End(1, Exited{0}));
  ASSERT_EQ(effects.size(), 1u);
  ASSERT_EQ(Ends(effects).size(), 1u);
  const auto places = Ends(effects)[0].places;
  ASSERT_EQ(places.size(), 1u) << "its own alone";
  EXPECT_EQ(places[0].place, HasDone(7));
  EXPECT_TRUE(autopsy_.empty());
  EXPECT_EQ(autopsy_.NextDeadline(), std::nullopt);
}

TEST_F(AutopsyTest, AFailureIsReportedWithItsEvidence) {
  const auto asked = Those<ReadEvidence>(Step(End(1, Exited{3})));
  ASSERT_EQ(asked.size(), 1u);
  EXPECT_EQ(asked[0].pid, 101);
  EXPECT_EQ(asked[0].record_file, "record");
  EXPECT_EQ(asked[0].core_of_start, std::nullopt) << "it dumped none";
  EXPECT_FALSE(autopsy_.empty());
  EXPECT_EQ(autopsy_.NextDeadline(), now_ + kDiskAnswerTimeout);
  EXPECT_TRUE(Pass(kDiskAnswerTimeout - milliseconds(1)).empty());
  const auto effects = Read(asked[0].end, "it broke");
  ASSERT_EQ(effects.size(), 2u);
  EXPECT_EQ(Those<KeepRecord>(effects).at(0).bytes, "bytes");
  EXPECT_EQ(Ends(effects).at(0).message, "it broke");
  EXPECT_EQ(Ends(effects).at(0).core_file, "/core");
  EXPECT_TRUE(autopsy_.empty());
}

TEST_F(AutopsyTest, ADiskThatDoesNotAnswerIsNotWaitedForNorAskedForCoresAgain) {
  EndSeen first = End(0, Signaled{SIGSEGV, true});
  EXPECT_TRUE(Those<ReadEvidence>(Step(first)).at(0).core_of_start.has_value());
  const auto effects = Pass(kDiskAnswerTimeout);
  ASSERT_EQ(effects.size(), 1u) << "no record is kept";
  EXPECT_EQ(Ends(effects).at(0).core_file, "");
  EXPECT_TRUE(Read(1).empty()) << "too late";
  const auto second = Those<ReadEvidence>(Step(End(1, Signaled{SIGSEGV, true})));
  EXPECT_EQ(second.at(0).core_of_start, std::nullopt);
}

TEST_F(AutopsyTest, ReportsKeepTheOrderOfTheEnds) {
  Step(End(0, Exited{3}));
  EXPECT_TRUE(Ends(Step(End(1, Exited{0}))).empty());
  WorkerLeft left;
  left.local_rank = 2;
  EXPECT_TRUE(Step(LeaveSeen{left, std::nullopt}).empty());
  const auto reports = Those<ReportEvent>(Read(1));
  ASSERT_EQ(reports.size(), 3u);
  EXPECT_EQ(std::get<WorkerEnded>(reports[0].event).local_rank, 0);
  EXPECT_EQ(std::get<WorkerEnded>(reports[1].event).local_rank, 1);
  EXPECT_EQ(std::get<WorkerLeft>(reports[2].event).local_rank, 2);
}

TEST_F(AutopsyTest, EvidenceOfALaterEndDoesNotOvertake) {
  Step(End(0, Exited{3}));
  Step(End(1, Exited{4}));
  EXPECT_TRUE(Read(2, "second").empty());
  const auto ends = Ends(Read(1, "first"));
  ASSERT_EQ(ends.size(), 2u);
  EXPECT_EQ(ends[0].message, "first");
  EXPECT_EQ(ends[1].message, "second");
}

TEST_F(AutopsyTest, OneThatLeavesIsReportedWithWhereAllWait) {
  WorkerLeft left;
  left.local_rank = 2;
  const auto reports = Those<ReportEvent>(Step(LeaveSeen{left, WaitsIn(8)}));
  ASSERT_EQ(reports.size(), 1u);
  EXPECT_EQ(std::get<WorkerLeft>(reports[0].event).places.size(), 2u) << "it waits, two do not";
}

// ---- Peers

TEST_F(AutopsyTest, AFailureInACollectiveIsHeldForWhatItsPeersSay) {
  EXPECT_EQ(Those<AskPlaces>(Step(EndInCollective(0))).size(), 1u);
  EXPECT_TRUE(Read(1).empty());
  EXPECT_EQ(autopsy_.NextDeadline(), now_ + kPeersSpeakTimeout);
  now_ += kPeersSpeakTimeout / 2;
  const auto second = Step(EndInCollective(1, 9));
  EXPECT_TRUE(Those<AskPlaces>(second).empty()) << "they are asked once";
  EXPECT_EQ(autopsy_.NextDeadline(), now_ + kPeersSpeakTimeout) << "after the last of them";
  EXPECT_TRUE(Read(2).empty());
  const auto ends = Ends(Pass(kPeersSpeakTimeout));
  ASSERT_EQ(ends.size(), 2u);
  EXPECT_EQ(ends[0].places, ends[1].places) << "the first knows where the second was";
  EXPECT_EQ(ends[0].places.size(), 3u);
}

TEST_F(AutopsyTest, PeersAreNotWaitedForWithoutEnd) {
  const TimePoint begun = now_;
  for (int i = 0; now_ < begun + kPeersSpeakMax; ++i) {
    Step(EndInCollective(0));
    Read(i + 1);
    EXPECT_LE(*autopsy_.NextDeadline(), begun + kPeersSpeakMax);
    now_ += kPeersSpeakTimeout / 2;
  }
  EXPECT_FALSE(Ends(Pass(Duration{0})).empty());
}

TEST_F(AutopsyTest, TheLastOneOfThemIsNotHeld) {
  Step(EndInCollective(0));
  Read(1);
  peers_.any_runs = false;
  EXPECT_EQ(Ends(Step(TimePassed{})).size(), 1u);
}

TEST_F(AutopsyTest, PeersThatCanBeKeptDoNotEndBecauseOfIt) {
  peers_.any_can_be_kept = true;
  EXPECT_TRUE(Those<AskPlaces>(Step(EndInCollective(0))).empty());
  EXPECT_EQ(Ends(Read(1)).size(), 1u);
}

TEST_F(AutopsyTest, AnAbortCountsAsAFailureInACollective) {
  EXPECT_EQ(Those<AskPlaces>(Step(End(0, Signaled{SIGABRT, false}))).size(), 1u);
}

TEST_F(AutopsyTest, AFailureElsewhereIsNotHeld) {
  EXPECT_TRUE(Those<AskPlaces>(Step(End(0, Signaled{SIGSEGV, false}))).empty());
  EXPECT_EQ(Ends(Read(1)).size(), 1u);
}

TEST_F(AutopsyTest, AProgramThatSaysNotWhereItIsHasNoPeersToAsk) {
  EndSeen seen = EndInCollective(0);
  seen.watches_collectives = false;
  EXPECT_TRUE(Those<AskPlaces>(Step(seen)).empty());
  EXPECT_EQ(Ends(Read(1)).size(), 1u);
}

TEST_F(AutopsyTest, ARoundThatIsBeingStoppedHoldsNothing) {
  Step(EndInCollective(0));
  peers_.stopping = true;
  EXPECT_TRUE(Ends(Step(TimePassed{})).empty()) << "its evidence is still read";
  EXPECT_EQ(Ends(Read(1)).size(), 1u);
  const auto effects = Step(EndInCollective(1));
  EXPECT_TRUE(Those<AskPlaces>(effects).empty());
}

TEST_F(AutopsyTest, OneThatWasStoppedTellsNothingOfPlaces) {
  EndSeen seen = EndInCollective(0);
  seen.ended.stopped = true;
  EXPECT_TRUE(Those<AskPlaces>(Step(seen)).empty());
  EXPECT_TRUE(Ends(Read(1)).at(0).places.empty());
}

TEST_F(AutopsyTest, OneThatWasFailingWhenItWasSignaledHasFailedByItself) {
  EndSeen seen = End(0, Signaled{SIGTERM, false});
  seen.was_failing = true;
  Step(seen);
  EXPECT_EQ(Ends(Read(1)).at(0).outcome, Outcome(Exited{1}));
}

// ---- Dumps

TEST_F(AutopsyTest, DumpsAreReadForOneThatHasNotSaidWhereItWas) {
  places_.Start(3, now_);
  Say(2, HasDone(7));
  const auto asked = Those<ReadFlightDumps>(Step(End(0, Exited{1})));
  ASSERT_EQ(asked.size(), 1u);
  EXPECT_EQ(asked[0].local_ranks, (std::vector<int>{0, 1}));
  EXPECT_EQ(asked[0].ended, 0);
  EXPECT_TRUE(Read(1).empty()) << "held for the dumps";
  EXPECT_TRUE(Those<ReadFlightDumps>(Step(End(1, Exited{1}))).empty()) << "they are being read";
  Read(2);
  const auto ends = Ends(Step(DumpsRead{{{0, *WaitsIn(8).place}, {1, HasDone(7)}}}));
  ASSERT_EQ(ends.size(), 2u);
  EXPECT_EQ(ends[0].places.size(), 2u) << "one waits, two do not";
  EXPECT_TRUE(places_.HasDumps());
}

TEST_F(AutopsyTest, DumpsAreNotWaitedForWithoutEnd) {
  places_.Start(3, now_);
  Step(End(0, Exited{1}));
  Read(1);
  EXPECT_EQ(autopsy_.NextDeadline(), now_ + kPeersSpeakMax + kDiskAnswerTimeout);
  EXPECT_EQ(Ends(Pass(kPeersSpeakMax + kDiskAnswerTimeout)).size(), 1u);
  Step(DumpsRead{{{0, HasDone(7)}}});
  EXPECT_FALSE(places_.HasDumps()) << "too late";
}

TEST_F(AutopsyTest, ANewRoundWaitsForNothingOfTheOldOne) {
  Step(EndInCollective(0));
  Read(1);
  autopsy_.BeginRound(0);
  EXPECT_EQ(Ends(Step(TimePassed{})).size(), 1u);
}

}  // namespace
}  // namespace ddprun
