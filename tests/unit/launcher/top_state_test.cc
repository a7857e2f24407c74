// SPDX-License-Identifier: Apache-2.0
// Keys, statuses and answers of `ddpctl top`, and what is asked for then.
#include "launcher/top/top_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launcher/base/limits.h"
#include "tests/unit/launcher/top_fixture.h"

namespace ddprun {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using Kind = TopKey::Kind;

class TopTest : public ::testing::Test {
 protected:
  TopTest() { Show({TopRun("job", 2, 2)}); }
  TopEffects Show(std::vector<RunStatus> runs) {
    return top.On(StatusCame{{.software_version = "1", .runs = std::move(runs)}});
  }
  // "0", "0.1": a node, a rank of it.
  std::vector<std::string> Rows() const {
    std::vector<std::string> rows;
    for (const TopRow row : top.rows()) {
      rows.push_back(std::to_string(row.node) +
                     (row.local_rank < 0 ? "" : "." + std::to_string(row.local_rank)));
    }
    return rows;
  }
  std::string Selected() const { return Rows().at(top.selected()); }
  std::string State(std::size_t node, int local_rank) const {
    return StateText(top, {node, local_rank});
  }

  Top top;
};

TEST_F(TopTest, TheFirstStatusAsksForTheEventsOfItsRun) {
  Top fresh;
  EXPECT_EQ(fresh.run(), nullptr);
  const TopEffects effects = fresh.On(StatusCame{{.runs = {TopRun("job", 1, 1)}}});
  ASSERT_THAT(effects, SizeIs(1));
  EXPECT_EQ(std::get<WatchEvents>(effects[0]).run_id, "job");
  EXPECT_TRUE(Show({TopRun("job", 2, 2)}).empty());
}

TEST_F(TopTest, ANodeIsFollowedByItsRanksAndTheSelectedOneStaysSelected) {
  EXPECT_THAT(Rows(), ElementsAre("0", "0.0", "0.1", "1", "1.0", "1.1"));
  Press(top, "jjjjk");
  EXPECT_EQ(Selected(), "1");
  RunStatus run = TopRun("job", 3, 2);
  std::swap(run.nodes[0], run.nodes[1]);
  Show({run});
  EXPECT_EQ(Selected(), "0");
  EXPECT_EQ(top.NodeOf(top.rows()[top.selected()]).host, "host-1");
  Press(top, "G");
  Show({TopRun("job", 1, 1)});
  EXPECT_EQ(Selected(), "0.0");
  Press(top, "jjjg");
  EXPECT_EQ(Selected(), "0");
}

TEST_F(TopTest, TheScreenFollowsTheSelectionAndNoFurther) {
  Show({TopRun("job", 10, 3)});
  for (int i = 0; i < 15; ++i) top.OnKey({Kind::kDown}, 10);
  EXPECT_EQ(top.FirstRow(10), 6u);
  for (int i = 0; i < 5; ++i) top.OnKey({Kind::kUp}, 10);
  EXPECT_EQ(top.FirstRow(10), 6u);
  top.OnKey({Kind::kPageUp}, 10);
  EXPECT_EQ(top.FirstRow(10), 0u);
  top.OnKey({Kind::kLast}, 10);
  EXPECT_EQ(top.selected(), 39u);
  EXPECT_EQ(top.FirstRow(10), 30u);
  EXPECT_EQ(top.FirstRow(20), 30u);
  EXPECT_EQ(top.FirstRow(4), 36u);
}

TEST_F(TopTest, AFilterKeepsTheRowsThatSayIt) {
  Press(top, "/HOST-1");
  EXPECT_EQ(top.mode(), TopMode::kFilter);
  EXPECT_THAT(Rows(), ElementsAre("1", "1.0", "1.1"));
  for (int i = 0; i < 6; ++i) top.OnKey({Kind::kErase}, 10);
  Press(top, "rank 3");
  EXPECT_EQ(top.filter(), "rank 3");
  top.OnKey({Kind::kEscape}, 10);
  Press(top, "/rank 3");
  top.OnKey({Kind::kEnter}, 10);
  EXPECT_EQ(top.mode(), TopMode::kTable);
  EXPECT_THAT(Rows(), ElementsAre("1.1"));
  Press(top, "/nothing");
  EXPECT_TRUE(Rows().empty());
  Press(top, "jk", 10);
  top.OnKey({Kind::kEnter}, 10);
  Press(top, "sld");
  EXPECT_EQ(top.mode(), TopMode::kTable);
  top.OnKey({Kind::kEscape}, 10);
  EXPECT_THAT(Rows(), SizeIs(6));
  Press(top, "/" + std::string(1000, 'x'));
  EXPECT_THAT(top.filter(), SizeIs(kTopFilterBytesMax));
}

TEST_F(TopTest, WhatIsWrongIsNamedAndTheWorstComesFirst) {
  RunStatus run = TopRun("job", 3, 2);
  run.nodes[0].rank_reports[1].slowness = 2.12;
  run.nodes[1].rank_reports[0].hung = true;
  run.nodes[2].rank_reports[1].ended = true;
  const auto in = [](int first, int last, bool waits) {
    RanksInPlace ranks{.ranks = {{first, last}}, .place = {}};
    if (waits) ranks.place.waits = Collective{"0", 57, "all_reduce"};
    return ranks;
  };
  run.still = {in(4, 4, false), in(2, 3, true)};
  NodeStatus spare;
  spare.state = NodeState::kSpare;
  run.nodes.push_back(spare);
  Show({run});
  EXPECT_EQ(State(0, 0), "running");
  EXPECT_EQ(State(0, 1), "slow 2.1x");
  EXPECT_EQ(State(1, 0), "hung");
  EXPECT_EQ(State(1, 1), "waits");
  EXPECT_EQ(State(1, -1), "hung");
  EXPECT_EQ(State(2, 0), "late");
  EXPECT_EQ(State(2, 1), "ended");
  EXPECT_EQ(State(3, -1), "spare");
  Press(top, "o");
  EXPECT_EQ(top.sort(), TopSort::kTrouble);
  EXPECT_THAT(Rows(), ElementsAre("1.0", "2.0", "1.1", "0.1", "0.0", "2.1", "3"));
  run.nodes[0].state = NodeState::kAway;
  Show({run});
  EXPECT_EQ(State(0, 0), "away");
}

TEST_F(TopTest, RanksAreOrderedByTheirFigures) {
  RunStatus run = TopRun("job", 2, 2);
  run.nodes[1].rank_reports[0].step = 3;
  run.nodes[0].rank_reports[0].step = -1;
  run.nodes[1].rank_reports[1].memory <<= 1;
  Show({run});
  Press(top, "oo");
  EXPECT_THAT(Rows(), ElementsAre("1.0", "0.1", "1.1", "0.0"));
  Press(top, "oo");
  EXPECT_EQ(top.sort(), TopSort::kLoss);
  EXPECT_THAT(Rows(), ElementsAre("0.1", "1.1", "0.0", "1.0"));
  Press(top, "o");
  EXPECT_EQ(Rows().front(), "1.1");
  Press(top, "o");
  EXPECT_THAT(Rows(), SizeIs(6));
}

TEST_F(TopTest, ANodeIsItsRanksTogether) {
  const RankReport node = top.ReportOf({1, -1});
  EXPECT_EQ(node.memory, 2LL << 30);
  EXPECT_EQ(node.gpu_memory, 6LL << 30);
  EXPECT_EQ(node.loss, 0.375);
  EXPECT_EQ(node.rate, 100);
}

TEST_F(TopTest, StacksAndLogsAreOfTheSelectedRank) {
  Press(top, "jj");
  const TopEffects stacks = Press(top, "s");
  ASSERT_THAT(stacks, SizeIs(1));
  const AskStacks ask = std::get<AskStacks>(stacks[0]);
  EXPECT_EQ(ask.rank, 1);
  EXPECT_EQ(ask.run_id, "job");
  EXPECT_EQ(top.mode(), TopMode::kText);
  EXPECT_EQ(top.text().title, "stacks of rank 1");
  top.On(TextCame{ask.number, {"frame 1", "frame 2"}});
  EXPECT_THAT(top.text().lines, ElementsAre("frame 1", "frame 2"));
  const TopEffects closed = Press(top, "q");
  EXPECT_EQ(std::get<CloseText>(closed.at(0)).number, ask.number);
  const TopEffects log = Press(top, "jl");
  EXPECT_EQ(std::get<OpenLog>(log.at(0)).rank, 2) << "of a node: its first one";
  top.On(TextCame{ask.number, {"an answer that comes late"}});
  EXPECT_TRUE(top.text().lines.empty());
}

TEST_F(TopTest, ALogShowsItsEndUntilSomebodyScrolls) {
  const int number = std::get<OpenLog>(Press(top, "l").at(0)).number;
  top.On(TextCame{number, std::vector<std::string>(25, "line")});
  EXPECT_TRUE(top.text().follows);
  Press(top, "k");
  EXPECT_FALSE(top.text().follows);
  EXPECT_EQ(top.text().scroll, 14u);
  top.On(TextCame{number, std::vector<std::string>(kTopTextLinesMax - 24, "more")});
  EXPECT_THAT(top.text().lines, SizeIs(kTopTextLinesMax));
  EXPECT_EQ(top.text().scroll, 13u) << "the same line is at the top";
  Press(top, "G");
  EXPECT_TRUE(top.text().follows);
}

TEST_F(TopTest, ADrainIsAskedForAndIsOfTheNodeThatWasNamed) {
  EXPECT_TRUE(Press(top, "jjjjd").empty());
  EXPECT_EQ(top.question(), "drain node host-1 (node rank 1) of run job? (y/n)");
  EXPECT_TRUE(Press(top, "n").empty());
  EXPECT_EQ(top.mode(), TopMode::kTable);
  Press(top, "d");
  Show({TopRun("job", 1, 2)});
  const TopEffects effects = Press(top, "y");
  EXPECT_EQ(std::get<AskDrain>(effects.at(0)).node_id, "id-1");
  top.On(AnswerCame{"node host-1 leaves"});
  EXPECT_EQ(top.message(), "node host-1 leaves");
  Press(top, "j");
  EXPECT_EQ(top.message(), "");
  EXPECT_TRUE(std::holds_alternative<EndTop>(Press(top, "q").at(0)));
}

TEST_F(TopTest, TabShowsTheNextRun) {
  Show({TopRun("job", 2, 2), TopRun("other", 1, 1)});
  top.On(EventCame{"of job"});
  EXPECT_EQ(std::get<WatchEvents>(Press(top, "\t").at(0)).run_id, "other");
  EXPECT_TRUE(top.events().empty());
  Show({TopRun("job", 2, 2), TopRun("other", 1, 1)});
  EXPECT_EQ(top.run()->run_id, "other");
  EXPECT_EQ(std::get<WatchEvents>(Show({TopRun("job", 2, 2)}).at(0)).run_id, "job");
  Show({});
  EXPECT_EQ(top.run(), nullptr);
  EXPECT_TRUE(Press(top, "jksldo\t").empty());
}

TEST_F(TopTest, WhatWasSeenStaysWhileTheServiceDoesNotAnswer) {
  top.On(StatusFailed{"the service is away"});
  EXPECT_EQ(top.trouble(), "the service is away");
  EXPECT_THAT(Rows(), SizeIs(6));
  Show({TopRun("job", 2, 2)});
  EXPECT_EQ(top.trouble(), "");
}

TEST_F(TopTest, WhatIsKeptIsBounded) {
  for (std::size_t i = 0; i < 2 * kTopHistoryMax; ++i) {
    Show({TopRun("job", 1, 1)});
    top.On(EventCame{"event"});
  }
  EXPECT_THAT(top.losses(), SizeIs(kTopHistoryMax));
  EXPECT_THAT(top.rates(), SizeIs(kTopHistoryMax));
  EXPECT_THAT(top.events(), SizeIs(kTopEventsMax));
}

}  // namespace
}  // namespace ddprun
