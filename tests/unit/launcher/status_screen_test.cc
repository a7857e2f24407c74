// SPDX-License-Identifier: Apache-2.0
// What `ddpctl status --watch` shows, whatever the size of the screen.
#include "launcher/ctl/status_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_join.h"

namespace ddprun {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

ServiceStatus Runs(int nodes) {
  RunStatus run;
  run.run_id = "job";
  run.phase = RunPhase::kSealed;
  run.round = RoundId{2};
  run.world_size = nodes;
  run.nodes_min = run.nodes_max = run.node_count = nodes;
  for (int i = 0; i < nodes; ++i) {
    run.nodes.push_back({.node_id = NodeId{std::to_string(i)},
                         .host = "host-" + std::to_string(i),
                         .address = "10.0.0.1",
                         .node_rank = i,
                         .state = NodeState::kRunning,
                         .rank_first = i,
                         .ranks = 1});
  }
  return {.software_version = "1", .runs = {run}};
}

std::string Text(const ServiceStatus& status, ScreenSize size, const std::string& trouble = "") {
  const auto lines = StatusScreen(status, "heading", trouble, size);
  EXPECT_LE(lines.size(), static_cast<std::size_t>(size.rows));
  for (const std::string& line : lines) {
    EXPECT_LE(line.size(), static_cast<std::size_t>(size.columns)) << line;
  }
  return absl::StrJoin(lines, "\n");
}

TEST(StatusScreenTest, AFewNodesAreShownByRank) {
  EXPECT_EQ(Text(Runs(2), {}),
            "heading\n"
            "run job: running, round 2, world size 2, 2 nodes are here of 2, 0 of 0 restarts \n"
            "  NODE  HOST    ADDRESS   STATE    RANKS  HEARD\n"
            "  0     host-0  10.0.0.1  running  0      0.0 s ago\n"
            "  1     host-1  10.0.0.1  running  1      0.0 s ago");
}

TEST(StatusScreenTest, OfManyTheWorstAreShownFirst) {
  ServiceStatus status = Runs(500);
  status.runs[0].nodes[400].state = NodeState::kAway;
  status.runs[0].nodes[300].silent = std::chrono::seconds(8);
  const std::string text = Text(status, {.columns = 80, .rows = 8});
  EXPECT_THAT(text, HasSubstr("host-400"));
  EXPECT_THAT(text, HasSubstr("host-300"));
  EXPECT_LT(text.find("host-400"), text.find("host-300"));
  EXPECT_THAT(text, HasSubstr("and 496 more nodes: 496 running"));
}

TEST(StatusScreenTest, EveryRunHasItsPart) {
  ServiceStatus status = Runs(50);
  status.runs.push_back(status.runs[0]);
  status.runs[1].run_id = "other";
  const std::string text = Text(status, {.columns = 80, .rows = 24});
  EXPECT_THAT(text, HasSubstr("run job"));
  EXPECT_THAT(text, HasSubstr("run other"));
}

TEST(StatusScreenTest, AnySizeAndNothingToShow) {
  for (int rows = 1; rows < 12; ++rows) Text(Runs(30), {.columns = 7, .rows = rows});
  EXPECT_THAT(Text({}, {}), HasSubstr("no run"));
  EXPECT_THAT(Text({}, {}, "not reached"), Not(HasSubstr("no run")));
  EXPECT_THAT(Text(Runs(1), {}, "not reached"), HasSubstr("not reached"));
}

TEST(StatusLinesTest, DoNotChangeAsTimePasses) {
  ServiceStatus later = Runs(3);
  later.runs[0].nodes[0].silent = std::chrono::seconds(3);
  EXPECT_EQ(StatusLines(Runs(3)), StatusLines(later));
  EXPECT_THAT(StatusLines(later)[0], HasSubstr("; 3 running"));
}

}  // namespace
}  // namespace ddprun
