// SPDX-License-Identifier: Apache-2.0
// The plan of `ddpctl chaos` and its report.
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "launcher/chaos/chaos_plan.h"
#include "launcher/chaos/chaos_report.h"

namespace ddprun {
namespace {

using std::chrono::milliseconds;

TimePoint At(int ms) { return TimePoint(milliseconds(ms)); }

// Two nodes with two ranks each.
RunStatus Running() {
  RunStatus status;
  status.run_id = "job7";
  status.phase = RunPhase::kSealed;
  status.round = RoundId{1};
  status.world_size = 4;
  for (int i = 0; i < 2; ++i) {
    NodeStatus node;
    node.node_id = NodeId{i == 0 ? "a-1" : "b-1"};
    node.host = i == 0 ? "a" : "b";
    node.node_rank = i;
    node.state = NodeState::kRunning;
    node.rank_first = 2 * i;
    node.ranks = 2;
    status.nodes.push_back(node);
  }
  return status;
}

std::vector<FaultKind> Kinds(const std::string& list) { return *ParseFaultKinds(list); }

TEST(FaultTable, KindsAreNamedOnceAndUnknownOnesAreRejected) {
  EXPECT_EQ(Kinds("kill,stop,kill"), (std::vector{FaultKind::kKill, FaultKind::kStop}));
  EXPECT_EQ(Kinds("all").size(), FaultTable().size());
  const std::vector<FaultKind> common = Kinds("default");
  const std::set<FaultKind> set(common.begin(), common.end());
  EXPECT_FALSE(set.contains(FaultKind::kAgent));
  EXPECT_FALSE(set.contains(FaultKind::kService));
  const auto wrong = ParseFaultKinds("kill,flood");
  ASSERT_FALSE(wrong.ok());
  EXPECT_NE(wrong.status().message().find("there is no fault 'flood'"), std::string::npos);
  EXPECT_FALSE(ParseFaultKinds(" , ").ok());
}

TEST(FaultTable, EveryKindOfTheWireHasARow) {
  for (int kind = 1; kind < static_cast<int>(FaultKind::kUndo); ++kind) {
    EXPECT_EQ(InfoOf(static_cast<FaultKind>(kind)).kind, static_cast<FaultKind>(kind));
  }
}

TEST(ChaosPlan, SameSeedGivesTheSameFaults) {
  ChaosPlan one(7, Kinds("all"), milliseconds(0));
  ChaosPlan same(7, Kinds("all"), milliseconds(0));
  ChaosPlan other(8, Kinds("all"), milliseconds(0));
  std::string text, text_of_same, text_of_other;
  for (int i = 0; i < 40; ++i) {
    for (auto& [plan, names] : {std::pair(&one, &text), std::pair(&same, &text_of_same),
                                std::pair(&other, &text_of_other)}) {
      const auto fault = plan->Next(Running(), At(10'000 * i));
      ASSERT_TRUE(fault.has_value());
      *names += std::string(InfoOf(fault->kind).name) + TargetName(*fault) + ";";
    }
  }
  EXPECT_EQ(text, text_of_same);
  EXPECT_NE(text, text_of_other);
}

TEST(ChaosPlan, EachKindComesOnceBeforeAnyComesAgain) {
  const std::vector<FaultKind> kinds = Kinds("all");
  ChaosPlan plan(1, kinds, milliseconds(0));
  for (int turn = 0; turn < 3; ++turn) {
    std::set<FaultKind> seen;
    for (std::size_t i = 0; i < kinds.size(); ++i) {
      seen.insert(
          plan.Next(Running(), At(100'000 * (turn + 1) + static_cast<int>(i) * 5000))->kind);
    }
    EXPECT_EQ(seen.size(), kinds.size());
  }
}

TEST(ChaosPlan, EveryRankIsChosen) {
  ChaosPlan plan(1, Kinds("kill"), milliseconds(0));
  std::map<int, int> seen;
  for (int i = 0; i < 400; ++i) ++seen[plan.Next(Running(), At(i))->rank];
  ASSERT_EQ(seen.size(), 4u);
  for (const auto& [rank, count] : seen) EXPECT_GT(count, 50) << rank;
}

TEST(ChaosPlan, ATargetWithALastingFaultIsLeftAlone) {
  ChaosPlan plan(1, Kinds("stop"), milliseconds(1000));
  std::set<int> ranks;
  for (int i = 0; i < 4; ++i) {
    const auto fault = plan.Next(Running(), At(i));
    ASSERT_TRUE(fault.has_value());
    EXPECT_EQ(fault->duration, milliseconds(1000));
    ranks.insert(fault->rank);
  }
  EXPECT_EQ(ranks.size(), 4u);
  EXPECT_FALSE(plan.Next(Running(), At(900)).has_value());
  EXPECT_TRUE(plan.Next(Running(), At(1100)).has_value());
}

TEST(ChaosPlan, OnlyRunningWorkersAreChosen) {
  RunStatus status = Running();
  status.nodes[1].state = NodeState::kAway;
  ChaosPlan plan(1, Kinds("kill,session"), milliseconds(0));
  for (int i = 0; i < 50; ++i) {
    const auto fault = plan.Next(status, At(10'000 * i));
    ASSERT_TRUE(fault.has_value());
    EXPECT_EQ(fault->host, "a");
  }
  status.phase = RunPhase::kForming;
  EXPECT_FALSE(plan.Next(status, At(0)).has_value());
}

TEST(ChaosReport, ANewStepIsAWholeOneAfterTheFault) {
  EXPECT_FALSE(HasMadeNewStep({0, 10}, {0, 10}));
  EXPECT_FALSE(HasMadeNewStep({0, 10}, {0, 11}));  // may have been made before the fault
  EXPECT_TRUE(HasMadeNewStep({0, 10}, {0, 12}));
  EXPECT_TRUE(HasMadeNewStep({0, 10}, {1, 0}));
  EXPECT_FALSE(HasMadeNewStep({1, 3}, {0, 200}));  // made again since a checkpoint
  RunStatus status = Running();
  EXPECT_FALSE(FurthestStep(status).has_value());
  status.nodes[0].progress = Progress{.step = 7, .epoch = 1};
  status.nodes[1].progress = Progress{.step = 9, .epoch = 1};
  EXPECT_EQ(FurthestStep(status)->step, 9);
}

ChaosResult SomeResult() {
  ChaosResult result{.run_id = "job7", .seed = 5, .seconds = 60, .end = "the run has ended"};
  const PlannedFault kill{.kind = FaultKind::kKill, .rank = 3, .node_id = "b-1", .host = "b"};
  for (int i = 1; i <= 100; ++i) {
    result.faults.push_back({kill, i * 1.0, true, "SIGKILL to rank 3 (pid 1)", i * 0.01});
  }
  const PlannedFault cut{.kind = FaultKind::kCut, .rank = 1, .node_id = "a-1", .host = "a"};
  result.faults.push_back({cut, 50, false, "not possible here", std::nullopt});
  result.faults.push_back({cut, 55, true, "cut", std::nullopt});
  result.before[TimeClass::kTraining] = std::chrono::seconds(100);
  result.after[TimeClass::kTraining] = std::chrono::seconds(190);
  result.after[TimeClass::kRecovery] = std::chrono::seconds(10);
  return result;
}

TEST(ChaosReport, TextHasEachKindAndTheGoodput) {
  const ChaosResult result = SomeResult();
  EXPECT_EQ(FaultLine(result.faults[11]),
            "    12.0 s  kill     rank 3 on b: training again after 0.12 s");
  EXPECT_EQ(FaultLine(result.faults[100]),
            "    50.0 s  cut      rank 1 on a: not carried out: not possible here");
  const std::string text = ChaosText(result);
  EXPECT_NE(text.find("kill          100      0.50      0.99      1.00         0"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("1 not carried out: not possible here"), std::string::npos) << text;
  EXPECT_NE(text.find("goodput: 90.0 % of 100 rank-seconds: training"), std::string::npos) << text;
  EXPECT_EQ(text.find("  stop"), std::string::npos) << text;
}

TEST(ChaosReport, JsonHasTheSame) {
  const auto json = nlohmann::json::parse(ChaosJson(SomeResult()));
  EXPECT_EQ(json["seed"], 5);
  EXPECT_EQ(json["kinds"]["kill"]["done"], 100);
  EXPECT_EQ(json["kinds"]["kill"]["lost_seconds"]["p99"], 0.99);
  EXPECT_EQ(json["kinds"]["cut"]["not_done"], 1);
  EXPECT_EQ(json["kinds"]["cut"]["without_new_step"], 1);
  EXPECT_EQ(json["rank_seconds"]["training"], 90);
  EXPECT_EQ(json["faults"].size(), 102u);
}

}  // namespace
}  // namespace ddprun
