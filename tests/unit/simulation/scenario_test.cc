// SPDX-License-Identifier: Apache-2.0
// Scenarios as text: what a line says, when it happens, and what is said about one that is wrong.
#include "tests/simulation/scenario.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/simulation/sim_clock.h"

namespace ddprun {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

std::string ErrorOf(absl::string_view text) {
  return std::string(ParseScenario("s.txt", text).status().message());
}

TEST(ScenarioTest, ALineHasTimeVerbWordsAndValues) {
  const auto lines = ParseScenario("s.txt",
                                   "# why\n"
                                   "\n"
                                   "nodes 4 restarts=2   # as in the report\n"
                                   "  at 1.5s crash service how=\"kill -9\" \"two words\"\n");
  ASSERT_TRUE(lines.ok()) << lines.status();
  ASSERT_EQ(lines->size(), 2u);
  const ScenarioLine& first = (*lines)[0];
  EXPECT_EQ(first.place, "s.txt:3");
  EXPECT_FALSE(first.at);
  EXPECT_EQ(first.verb, "nodes");
  EXPECT_THAT(first.words, ElementsAre("4"));
  EXPECT_EQ(*first.Number("restarts"), 2);
  const ScenarioLine& second = (*lines)[1];
  EXPECT_EQ(*second.at, milliseconds(1500));
  EXPECT_EQ(second.verb, "crash");
  EXPECT_THAT(second.words, ElementsAre("service", "two words"));
  EXPECT_THAT(second.values, UnorderedElementsAre(Pair("how", "kill -9")));
}

TEST(ScenarioTest, TimesHaveUnits) {
  EXPECT_EQ(*ParseSimDuration("30us"), std::chrono::microseconds(30));
  EXPECT_EQ(*ParseSimDuration("200ms"), milliseconds(200));
  EXPECT_EQ(*ParseSimDuration("0s"), Duration(0));
  EXPECT_EQ(*ParseSimDuration("0.5h"), std::chrono::minutes(30));
  for (const char* wrong : {"", "5", "s", "-1s", "1x", "1.2.3s", "1e300h"}) {
    EXPECT_FALSE(ParseSimDuration(wrong).ok()) << wrong;
  }
}

TEST(ScenarioTest, WhatIsWrongIsNamedWithItsLine) {
  EXPECT_EQ(ErrorOf("ok\nat 1s"), "s.txt:2: 'at' wants a time and what happens then");
  EXPECT_EQ(ErrorOf("at 5 crash"), "s.txt:1: '5' is not a time such as 1.5s or 200ms");
  EXPECT_EQ(ErrorOf("say \"hello"), "s.txt:1: a quote is not closed");
  EXPECT_EQ(ErrorOf("set a=1 a=2"), "s.txt:1: set: 'a' is there twice");
  EXPECT_EQ(ErrorOf("at 2s a\nat 1s b"), "s.txt:2: b: is earlier than a line before it");
  const auto lines = ParseScenario("s.txt", "verb x=y t=soon");
  EXPECT_EQ(lines->front().Number("x").status().message(), "s.txt:1: verb: x=y is not a number");
  EXPECT_EQ(lines->front().Number("n").status().message(), "s.txt:1: verb: wants n=NUMBER");
  EXPECT_FALSE(lines->front().Time("t").ok());
  EXPECT_FALSE(lines->front().Time("n").ok());
  EXPECT_EQ(lines->front().Word(1).status().message(), "s.txt:1: verb: wants at least 2 words");
}

TEST(ScenarioTest, LinesHappenAtTheirTimes) {
  SimClock clock;
  const TimePoint start = clock.now();
  std::vector<std::pair<std::string, Duration>> seen;
  const auto note = [&](const ScenarioLine& line) {
    seen.emplace_back(line.words[0], clock.now() - start);
    return absl::OkStatus();
  };
  clock.After(milliseconds(700), [&] { seen.emplace_back("timer", clock.now() - start); });
  const auto lines = ParseScenario("s.txt", "do a\nat 500ms do b\ndo c\nat 1s do d\n");
  const auto pass = [&](Duration since_start) {
    clock.RunUntil(start + since_start);
    return absl::OkStatus();
  };
  EXPECT_TRUE(RunScenario(*lines, pass, {{"do", note}}).ok());
  EXPECT_THAT(seen, ElementsAre(Pair("a", Duration(0)), Pair("b", milliseconds(500)),
                                Pair("c", milliseconds(500)), Pair("timer", milliseconds(700)),
                                Pair("d", milliseconds(1000))));
}

TEST(ScenarioTest, ALineAsTextReadsAsThatLine) {
  const std::string text = "at 1500us verb word other a=1 b=\"two words\"";
  const auto lines = ParseScenario("s.txt", text);
  ASSERT_EQ(lines->size(), 1u);
  EXPECT_EQ(ToText(lines->front()), text);
}

TEST(ScenarioTest, ATimeThatCannotPassEndsIt) {
  const auto pass = [](Duration) { return absl::InternalError("broken"); };
  const auto fine = [](const ScenarioLine&) { return absl::OkStatus(); };
  EXPECT_EQ(RunScenario(*ParseScenario("s.txt", "at 1s do"), pass, {{"do", fine}}).message(),
            "broken");
}

TEST(ScenarioTest, TheFirstErrorEndsIt) {
  const auto pass = [](Duration) { return absl::OkStatus(); };
  int done = 0;
  const std::map<std::string, ScenarioVerb> verbs = {
      {"do",
       [&](const ScenarioLine&) {
         ++done;
         return absl::OkStatus();
       }},
      {"fail", [](const ScenarioLine& line) { return line.Wrong("as it should"); }}};
  EXPECT_EQ(RunScenario(*ParseScenario("s.txt", "do\nfail\ndo"), pass, verbs).message(),
            "s.txt:2: fail: as it should");
  EXPECT_EQ(done, 1);
  EXPECT_EQ(RunScenario(*ParseScenario("s.txt", "undo"), pass, verbs).message(),
            "s.txt:1: undo: is not a verb of this scenario");
}

}  // namespace
}  // namespace ddprun
