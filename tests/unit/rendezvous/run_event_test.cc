// SPDX-License-Identifier: Apache-2.0
// What the event log says, as a program reads it.
#include "rendezvous/observe/run_event.h"

#include <nlohmann/json.hpp>

#include "tests/unit/rendezvous/membership_fixture.h"

namespace ddprun {
namespace {

using ::testing::ElementsAre;
using Json = nlohmann::json;

constexpr LinkId kA{1};
constexpr LinkId kB{2};

Json Line(const RunEvent& event) {
  const std::string line =
      ToJsonLine(event, std::chrono::system_clock::time_point(std::chrono::milliseconds(1'500)),
                 TimePoint(std::chrono::milliseconds(2'250)));
  EXPECT_EQ(line.find('\n'), line.size() - 1);
  return Json::parse(line);
}

std::vector<std::string> Names(const TestRun& run) {
  std::vector<std::string> names;
  for (const RunNotice& note : run.notes) names.push_back(EventOf("run", note).event);
  return names;
}

TEST(RunEventTest, EveryLineHasItsTimeAndPlace) {
  TestRun run;
  run.Joins("a", {.node_rank = 0});
  ASSERT_EQ(run.notes.size(), 1u);
  const Json line = Line(EventOf("job \xff", run.notes[0]));
  EXPECT_EQ(line["time"], "1970-01-01T00:00:01.500000Z");
  EXPECT_EQ(line["monotonic"], 2.25);
  EXPECT_EQ(line["event"], "node.joined");
  EXPECT_EQ(line["round"], 1);
  EXPECT_EQ(line["node"], "id-a");
  EXPECT_EQ(line["host"], "a");
  EXPECT_EQ(line["node_rank"], 0);
  EXPECT_FALSE(line.contains("rank"));
}

TEST(RunEventTest, ARunFromItsFirstNodeToItsEnd) {
  TestRun run;
  run.Joins("a", {.restarts = 1});
  run.Joins("b", {.restarts = 1});
  EXPECT_THAT(Names(run), ElementsAre("node.joined", "round.started"));
  EXPECT_EQ(Line(EventOf("run", run.notes[1]))["world_size"], 2);
  run.Reports(kA, WorkerFailed{RoundId{1}, ExitedWith(7)});
  EXPECT_THAT(Names(run), ElementsAre("round.broken"));
  const Json broken = Line(EventOf("run", run.notes[0]));
  EXPECT_EQ(broken["exit_code"], 7);
  EXPECT_EQ(broken["cause_rank"], 0);
  EXPECT_EQ(broken["reason"], "rank 0 (local rank 0 on host a) exited with code 7");
  run.Reports(kA, NodeStopped{RoundId{1}, 1});
  run.Reports(kB, NodeStopped{RoundId{1}, 1});
  EXPECT_THAT(Names(run), ElementsAre("restart", "round.started"));
  EXPECT_EQ(Line(EventOf("run", run.notes[0]))["restarts"], 1);
  run.Reports(kA, NodeSucceeded{RoundId{2}});
  run.Reports(kB, NodeSucceeded{RoundId{2}});
  EXPECT_THAT(Names(run), ElementsAre("node.succeeded", "run.finished"));
  EXPECT_EQ(Line(EventOf("run", run.notes[1]))["success"], true);
}

TEST(RunEventTest, WhoGoesAndHow) {
  TestRun run;
  run.Joins("a", {.nodes = 3, .lease = std::chrono::seconds(10)});
  run.Joins("b", {.nodes = 3, .lease = std::chrono::seconds(10)});
  run.Goes(kB);
  EXPECT_THAT(Names(run), ElementsAre("node.away"));
  run.Joins("b", {.nodes = 3, .lease = std::chrono::seconds(10), .resume = true});
  EXPECT_THAT(Names(run), ElementsAre("node.returned"));
  run.Do(NodeLost{NodeId{"id-b"}, "dead"});
  EXPECT_THAT(Names(run), ElementsAre("node.lost"));
  EXPECT_EQ(Line(EventOf("run", run.notes[0]))["reason"], "node b was lost: dead");
  run.Joins("c", {.nodes = 2});
  EXPECT_THAT(Names(run), ElementsAre("node.refused"));
  run.Do(NodeDrained{NodeId{"id-a"}, "desk"});
  EXPECT_THAT(Names(run), ElementsAre("node.drained"));
}

}  // namespace
}  // namespace ddprun
