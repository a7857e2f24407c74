// SPDX-License-Identifier: Apache-2.0
#include "launcher/replay/replay.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "launcher/replay/capsule.h"
#include "launcher/runs/step_lines.h"
#include "launcher/supervisor/verdict.h"
#include "tests/unit/rendezvous/membership_fixture.h"

namespace ddprun {
namespace {

using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::StartsWith;
using Json = nlohmann::ordered_json;

Failure OfRank(int rank, int code) {
  Failure failure = ExitedWith(code);
  failure.rank = rank;
  return failure;
}

// A run whose steps are recorded.
class RecordedRun {
 public:
  RunState state = MakeRun("run");
  TimePoint now{std::chrono::hours(1)};
  StepLines steps;
  std::vector<std::string> lines;

  void Do(const MembershipEvent& event, bool lose = false) {
    const std::string text = steps.Of(state, event, now);
    Step(state, event, now);
    if (lose) return steps.Lost();
    for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty()))
      lines.emplace_back(line);
  }
  void Joins(std::uint64_t link, const std::string& host, JoinOptions options) {
    Do(NodeJoined{LinkId{link}, MakeJoin(host, options)});
  }
  void Reports(std::uint64_t link, const Report& report, bool lose = false) {
    MembershipEvent event;  // filled in place: g++ 12 takes a move for a use of what is not set
    event.emplace<NodeReported>(LinkId{link}, report);
    Do(event, lose);
  }
  // Two nodes; the second one's worker fails, and with a restart left both go on.
  void FailsAfter(seconds time, int restarts, bool lose_stop = false) {
    Joins(1, "a", {.restarts = restarts, .lease = seconds(10), .hosts_service = true});
    Joins(2, "b", {.restarts = restarts, .lease = seconds(10)});
    now += time;
    Reports(2, WorkerFailed{RoundId{1}, OfRank(1, 7)});
    now += seconds(1);
    Reports(1, NodeStopped{.round = RoundId{1}, .worker_port = 1}, lose_stop);
    Reports(2, NodeStopped{.round = RoundId{1}, .worker_port = 1});
  }
  std::string VerdictText() const {
    return VerdictJson({.run_id = "run", .host = "a", .exit_code = 7, .verdict = state.verdict});
  }
};

std::vector<std::string> TextsOf(const std::vector<ReplayLine>& lines) {
  std::vector<std::string> texts;
  for (const ReplayLine& line : lines) texts.push_back(line.text);
  return texts;
}

TEST(StepLinesTest, BeginWithASnapshotAndHaveOneAgainAfterALoss) {
  RecordedRun run;
  run.FailsAfter(seconds(5), 1);
  EXPECT_THAT(run.lines, SizeIs(2 + 5));
  EXPECT_THAT(ParseSteps(run.lines), SizeIs(2 + 5));

  RecordedRun lossy;
  lossy.FailsAfter(seconds(5), 1, /*lose_stop=*/true);
  EXPECT_THAT(lossy.lines, SizeIs(2 + 3)) << "a pause";
  lossy.now += StepLines::kPauseAfterLoss;
  lossy.Reports(1, Heartbeat{});
  EXPECT_THAT(lossy.lines, SizeIs(2 + 3 + 2 + 1));
  const auto replayed = ReplaySteps(ParseSteps(lossy.lines), std::nullopt);
  ASSERT_TRUE(replayed.ok());
  EXPECT_EQ(replayed->status.round, RoundId{2}) << "the snapshot has what was lost";
}

TEST(StepLinesTest, WhatIsCutIsLeftOut) {
  RecordedRun run;
  run.FailsAfter(seconds(5), 1);
  run.lines[4].resize(run.lines[4].size() / 2);
  EXPECT_THAT(ParseSteps(run.lines), SizeIs(2 + 4));
  run.lines.erase(run.lines.begin());
  EXPECT_THAT(ParseSteps(run.lines), IsEmpty()) << "no snapshot follows";
}

TEST(ReplayTest, TellsWhatHappenedWhenAndHasTheSameVerdict) {
  RecordedRun run;
  run.FailsAfter(seconds(5), 0);
  const auto replayed = ReplaySteps(ParseSteps(run.lines), std::nullopt);
  ASSERT_TRUE(replayed.ok());
  EXPECT_TRUE(replayed->is_whole);
  EXPECT_EQ(replayed->length, seconds(6));
  EXPECT_THAT(TextsOf(replayed->lines),
              ElementsAre("node a joined", "node b joined", "round 1 begins: 2 workers on 2 nodes",
                          HasSubstr("reports: rank 1"), StartsWith("round 1 ends: rank 1"),
                          StartsWith("the run ends: rank 1")));
  ASSERT_EQ(replayed->verdict, run.state.verdict);
  EXPECT_EQ(WhereTheyPart(Json::parse(run.VerdictText()), *replayed->verdict), "");
  Verdict other = *replayed->verdict;
  other.cause->rank = 0;
  EXPECT_THAT(WhereTheyPart(Json::parse(run.VerdictText()), other), HasSubstr("in the record and"));
}

TEST(ReplayTest, UntilATimeHasTheStatusOfThen) {
  RecordedRun run;
  run.FailsAfter(seconds(5), 1);
  const auto early = ReplaySteps(ParseSteps(run.lines), seconds(3));
  ASSERT_TRUE(early.ok());
  EXPECT_EQ(early->status.phase, RunPhase::kSealed);
  EXPECT_EQ(early->status.restarts_used, 0);
  EXPECT_EQ(early->length, seconds(3));
  const auto late = ReplaySteps(ParseSteps(run.lines), seconds(60));
  ASSERT_TRUE(late.ok());
  EXPECT_EQ(late->status.round, RoundId{2});
  EXPECT_EQ(late->status.restarts_used, 1);
}

TEST(ReplayTest, LinesOfARankAreThoseOfItsNodeAndOfTheRun) {
  RecordedRun run;
  run.FailsAfter(seconds(5), 0);
  const auto replayed = ReplaySteps(ParseSteps(run.lines), std::nullopt);
  ASSERT_TRUE(replayed.ok());
  EXPECT_THAT(LinesText(replayed->lines, 1), HasSubstr("+5.000 s  node b"));
  EXPECT_THAT(LinesText(replayed->lines, 0), Not(HasSubstr("reports")));
  EXPECT_THAT(LinesText(replayed->lines, 0), HasSubstr("round 1 begins"));
}

TEST(ScenarioTextTest, HasWhatCameFromOutside) {
  RecordedRun run;
  run.FailsAfter(seconds(5), 0);
  const auto text = ScenarioText(ParseSteps(run.lines));
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_EQ(*text,
            "# Run run, from its record.\n"
            "run hosted nodes=2:2 restarts=0 lease=10000ms join-timeout=60000ms last-call=5000ms "
            "term-timeout=0ms work=60000ms collective=100ms rank-order=join\n"
            "at 0ms start n0 workers=1\n"
            "at 0ms start n1 workers=1\n"
            "await service phase=sealed round=1 within=1h\n"
            "await n1 phase=running round=1 within=1h\n"
            "at 5000ms fail n1 code=7\n"
            "await n0 phase=ended exit=7 within=1h\n"
            "settle\n");
}

TEST(ScenarioTextTest, NeedsTheWholeRun) {
  RecordedRun run;
  run.FailsAfter(seconds(5), 1);
  run.steps.Lost();
  run.now += StepLines::kPauseAfterLoss;
  const std::size_t before = run.lines.size();
  run.Do(Tick{});
  run.lines.erase(run.lines.begin(), run.lines.begin() + static_cast<std::ptrdiff_t>(before));
  const auto text = ScenarioText(ParseSteps(run.lines));
  EXPECT_EQ(text.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(text.status().message(), HasSubstr("begins in round 2"));
  EXPECT_FALSE(ReplaySteps(ParseSteps(run.lines), std::nullopt)->is_whole);
  EXPECT_EQ(ReplaySteps({}, std::nullopt).status().code(), absl::StatusCode::kDataLoss);
}

TEST(CapsuleTest, ACommandHasNoSecrets) {
  EXPECT_THAT(WithoutSecrets({"--notify", "https://hooks.example.com/services/T0/B0/XYZ?key=1",
                              "-n", "2", "train.py", "--api-key", "abc", "--hf-token=hf_x", "--lr",
                              "0.1", "WANDB_API_KEY=w", "--url",
                              "https://user:pw@h.example.com:8080", "--token", "--next", "value"}),
              ElementsAre("--notify", "https://hooks.example.com/***", "-n", "2", "train.py",
                          "--api-key", "***", "--hf-token=***", "--lr", "0.1", "WANDB_API_KEY=***",
                          "--url", "https://h.example.com:8080", "--token", "--next", "value"));
}

}  // namespace
}  // namespace ddprun
