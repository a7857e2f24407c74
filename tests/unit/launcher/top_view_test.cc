// SPDX-License-Identifier: Apache-2.0
// What `ddpctl top` draws, whatever the size of the screen and the text that it is given.
#include "launcher/top/top_view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tests/unit/launcher/top_fixture.h"

namespace ddprun {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

int Length(const std::string& text) {
  return static_cast<int>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }));
}

// The lines as they stand on the screen.
std::vector<std::string> Lines(const Top& top, ScreenSize size = {100, 24}, bool utf8 = true) {
  std::vector<std::string> texts;
  const std::vector<TopLine> lines = DrawTop(top, "heading", size, utf8);
  EXPECT_LE(lines.size(), static_cast<std::size_t>(std::max(1, size.rows)));
  for (const TopLine& line : lines) {
    std::string text;
    for (const TopCell& cell : line.cells) {
      EXPECT_GE(cell.column, Length(text));
      text.append(static_cast<std::size_t>(std::max(0, cell.column - Length(text))), ' ');
      text += cell.text;
    }
    EXPECT_LE(Length(text), size.columns) << text;
    texts.push_back(std::move(text));
  }
  return texts;
}

Top Shown(RunStatus run) {
  Top top;
  top.On(StatusCame{{.runs = {std::move(run)}}});
  return top;
}

TEST(TopViewTest, ARunWithItsNodesAndRanks) {
  RunStatus run = TopRun("job", 1, 2);
  run.time[TimeClass::kTraining] = std::chrono::seconds(90);
  run.time[TimeClass::kStart] = std::chrono::seconds(10);
  run.reason = "waiting for something";
  Top top = Shown(run);
  run.loss = 0.25;
  run.progress->rate = 200;
  top.On(StatusCame{{.runs = {run}}});
  top.On(EventCame{"round 2 begins"});
  EXPECT_EQ(absl::StrJoin(Lines(top, {100, 18}), "\n"),
            R"(heading
run job: running, round 2, world size 2, 1 node is here of 1, 0 of 0 restarts used
step 17  epoch 1  rate 200 images/s  ▁█  loss 0.25  █▁
goodput ███████████████████████████░░░ 90.0 % of 100 rank-seconds: training; start 10.0 %
  waiting for something
NODE RANK     HOST            STATE          STEP     RATE      LOSS  MEMORY     GPU DOING
0    0-1      host-0          running          17      100     0.375    2.0G    6.0G data
0      0      host-0          running          17       50      0.25    1.0G    3.0G forward
0      1      host-0          running          18       50       0.5    1.0G    3.0G forward



EVENTS
round 2 begins



j/k move  / filter  o order: rank  s stacks  l log  d drain  q quit)");
}

TEST(TopViewTest, ColoursAndTheSelectedRow) {
  RunStatus run = TopRun("job", 1, 2);
  run.nodes[0].rank_reports[1].hung = true;
  Top top = Shown(run);
  Press(top, "jj");
  const std::vector<TopLine> lines = DrawTop(top, "", {100, 24}, true);
  const auto row = std::find_if(lines.begin(), lines.end(), [](const TopLine& line) {
    return line.cells.size() > 3 && line.cells[3].text == "hung" && line.cells[1].text != "0-1";
  });
  ASSERT_NE(row, lines.end());
  EXPECT_TRUE(row->reversed);
  EXPECT_EQ(row->cells[3].style, TopStyle::kBad);
}

TEST(TopViewTest, AnySizeAndNothingToShow) {
  const Top empty;
  Top full = Shown(TopRun("job", 30, 3));
  full.On(StatusFailed{"not reached"});
  Top text = Shown(TopRun("job", 1, 1));
  Press(text, "l");
  text.On(TextCame{1, {"a", "b"}});
  for (int rows = 1; rows < 26; ++rows) {
    for (const int columns : {1, 7, 80, 300}) {
      for (const Top* const top :
           {&empty, static_cast<const Top*>(&full), static_cast<const Top*>(&text)}) {
        Lines(*top, {columns, rows});
        EXPECT_GE(PageOf(*top, {columns, rows}), 1u);
      }
    }
  }
  EXPECT_THAT(Lines(empty), Contains("no run"));
  EXPECT_THAT(Lines(full), Contains("not reached"));
}

TEST(TopViewTest, TheSelectedRowIsOnTheScreen) {
  Top top = Shown(TopRun("job", 100, 8));
  Press(top, "G", PageOf(top, {100, 24}));
  EXPECT_THAT(absl::StrJoin(Lines(top), "\n"), HasSubstr("  799 "));
  EXPECT_THAT(absl::StrJoin(Lines(top, {100, 10}), "\n"), HasSubstr("  799 "));
}

TEST(TopViewTest, TextFromElsewhereCannotMoveTheCursor) {
  RunStatus run = TopRun("job", 1, 1);
  run.nodes[0].host = "a\x1b[2J\nb\xff\tc";
  run.nodes[0].rank_reports[0].section = "d\xC3\xA4ta\r";
  Top top = Shown(run);
  top.On(EventCame{"\x1b]0;title\x07"});
  const std::string shown = absl::StrJoin(Lines(top), "|");
  EXPECT_THAT(shown, HasSubstr("a?b? c"));
  EXPECT_THAT(shown, HasSubstr("d\xC3\xA4ta?"));
  EXPECT_THAT(shown, Not(HasSubstr("\x1b")));
  for (const std::string& line : Lines(top, {100, 24}, false)) {
    EXPECT_TRUE(std::all_of(line.begin(), line.end(), [](char c) { return c >= ' ' && c < 127; }))
        << line;
  }
}

TEST(TopViewTest, TheFootSaysWhatKeysDoNow) {
  Top top = Shown(TopRun("job", 1, 1));
  Press(top, "/ab");
  EXPECT_EQ(Lines(top).back(), "/ab_");
  top.OnKey({TopKey::Kind::kEnter}, 10);
  EXPECT_THAT(Lines(top).back(), HasSubstr("(only: ab)"));
  top.OnKey({TopKey::Kind::kEscape}, 10);
  Press(top, "d");
  EXPECT_EQ(Lines(top).back(), top.question());
}

TEST(SparklineTest, IsBetweenTheLeastAndTheGreatest) {
  EXPECT_EQ(Sparkline({1, 2, 8}, 3, true), "▁▂█");
  EXPECT_EQ(Sparkline({1, 2, 8}, 2, false), "_#");
  EXPECT_EQ(Sparkline({5, 5}, 9, false), "__");
  EXPECT_EQ(Sparkline({}, 9, true), "");
}

TEST(BarTest, IsAShare) {
  EXPECT_EQ(Bar(0.5, 4, true), "██░░");
  EXPECT_EQ(Bar(2, 3, false), "###");
  EXPECT_EQ(Bar(-1, 3, false), "...");
}

}  // namespace
}  // namespace ddprun
