// SPDX-License-Identifier: Apache-2.0
// Every phase of a run against every event: the phase afterwards, and no pair forgotten.
#include <gtest/gtest.h>

#include <functional>
#include <map>

#include "rendezvous/base/limits.h"
#include "tests/unit/rendezvous/membership_fixture.h"

namespace ddprun {
namespace {

constexpr RoundId kFirst{1};
constexpr LinkId kA{1};
constexpr LinkId kB{2};

// A run of three places with one restart, brought to a phase. Nodes a and b are in it, c too once
// it is sealed.
TestRun RunIn(RunPhase phase) {
  const JoinOptions options{.nodes = 3, .restarts = 1};
  TestRun run;
  run.Joins("a", options);
  run.Joins("b", options);
  if (phase == RunPhase::kForming) return run;
  const LinkId c = run.Joins("c", options);
  if (phase == RunPhase::kSealed) return run;
  if (phase == RunPhase::kBroken) {
    run.Reports(c, WorkerFailed{kFirst, ExitedWith(7)});
    return run;
  }
  for (const LinkId link : {kA, kB, c}) run.Reports(link, NodeSucceeded{kFirst});
  return run;
}

struct Row {
  const char* event;
  std::function<MembershipEvent(const TestRun&)> make;
  RunPhase forming, sealed, broken, closed;  // the phase afterwards
};

TEST(MembershipTableTest, EveryPhaseMeetsEveryEvent) {
  constexpr RunPhase F = RunPhase::kForming, S = RunPhase::kSealed, B = RunPhase::kBroken,
                     C = RunPhase::kClosed;
  const auto report = [](Report what) {
    return [what](const TestRun&) -> MembershipEvent { return NodeReported{kA, what}; };
  };
  const auto join = [](JoinOptions options) {
    return [options](const TestRun&) -> MembershipEvent {
      return NodeJoined{LinkId{9}, MakeJoin("z", options)};
    };
  };
  const std::vector<Row> table = {
      {"a third node joins", join({.nodes = 3, .restarts = 1}), S, S, B, C},
      {"a node joins with other rules", join({.nodes = 2, .restarts = 1}), F, S, B, C},
      {"Join on a stream that has joined", report(MakeJoin("a", {.nodes = 3, .restarts = 1})), F, B,
       B, C},
      {"WorkerFailed", report(WorkerFailed{kFirst, ExitedWith(3)}), F, B, B, C},
      {"WorkerFailed of another round", report(WorkerFailed{RoundId{5}, ExitedWith(3)}), F, S, B,
       C},
      {"NodeSucceeded", report(NodeSucceeded{kFirst}), F, S, B, C},
      {"NodeSucceeded of another round", report(NodeSucceeded{RoundId{5}}), F, S, B, C},
      {"NodeStopped", report(NodeStopped{kFirst, 1}), F, S, B, C},
      {"NodeStopped of another round", report(NodeStopped{RoundId{5}, 1}), F, S, B, C},
      {"Leave", report(Leave{InterruptedBy(3), false}), F, B, B, C},
      {"Leave for good", report(Leave{InterruptedBy(3), true}), F, B, B, C},  // it does not host
      {"the stream ends", [](const TestRun&) -> MembershipEvent { return NodeGone{kA}; }, F, B, B,
       C},
      {"its agent is dead",
       [](const TestRun&) -> MembershipEvent {
         return NodeLost{NodeId{"id-a"}, "dead"};
       },
       F, B, B, C},
      {"an unknown agent is dead",
       [](const TestRun&) -> MembershipEvent {
         return NodeLost{NodeId{"id-?"}, "dead"};
       },
       F, S, B, C},
      {"somebody stops the run",
       [](const TestRun&) -> MembershipEvent {
         return RunStopped{"desk", false};
       },
       C, B, B, C},
      {"a node is drained",
       [](const TestRun&) -> MembershipEvent {
         return NodeDrained{NodeId{"id-a"}, "desk", false};
       },
       F, B, B, C},
      {"a node is to leave with the next round",
       [](const TestRun&) -> MembershipEvent {
         return NodeDrained{NodeId{"id-a"}, "desk", true};
       },
       F, S, B, C},
      {"an unknown node is drained",
       [](const TestRun&) -> MembershipEvent {
         return NodeDrained{NodeId{"id-?"}, "desk", false};
       },
       F, S, B, C},
      {"an unknown stream ends",
       [](const TestRun&) -> MembershipEvent { return NodeGone{LinkId{77}}; }, F, S, B, C},
      {"an unknown stream reports",
       [](const TestRun&) -> MembershipEvent {
         return NodeReported{LinkId{77}, WorkerFailed{kFirst, ExitedWith(3)}};
       },
       F, S, B, C},
      {"a tick too early", [](const TestRun&) -> MembershipEvent { return Tick{}; }, F, S, B, C},
  };
  for (const Row& row : table) {
    const std::map<RunPhase, RunPhase> outcomes = {
        {F, row.forming}, {S, row.sealed}, {B, row.broken}, {C, row.closed}};
    for (const auto& [from, to] : outcomes) {
      TestRun run = RunIn(from);
      ASSERT_EQ(run.state.phase, from);
      run.Do(row.make(run));
      EXPECT_EQ(run.state.phase, to) << row.event << " in phase " << static_cast<int>(from);
    }
  }
}

// A tick that nobody asked for once read the rules of a run that had none.
TEST(MembershipTableTest, NothingHappensBeforeTheFirstJoin) {
  const std::vector<MembershipEvent> events = {
      RunStopped{"desk", true},     NodeDrained{NodeId{"id-a"}, "desk"},    Tick{}, NodeGone{kA},
      NodeLost{NodeId{"id-a"}, ""}, NodeReported{kA, NodeSucceeded{kFirst}}};
  for (const MembershipEvent& event : events) {
    TestRun run;
    run.Do(event);
    EXPECT_TRUE(run.effects.empty());
    EXPECT_EQ(run.state.words, "");
    EXPECT_EQ(NextDeadline(run.state), std::nullopt);
  }
}

TEST(MembershipTableTest, EveryDeadlineLeadsOn) {
  const std::map<RunPhase, RunPhase> outcomes = {{RunPhase::kForming, RunPhase::kClosed},
                                                 {RunPhase::kBroken, RunPhase::kClosed}};
  for (const auto& [from, to] : outcomes) {
    TestRun run = RunIn(from);
    run.now += std::chrono::hours(1);
    run.Do(Tick{});
    EXPECT_EQ(run.state.phase, to);
  }
  EXPECT_FALSE(NextDeadline(RunIn(RunPhase::kSealed).state));
  EXPECT_FALSE(NextDeadline(RunIn(RunPhase::kClosed).state));
}

}  // namespace
}  // namespace ddprun
