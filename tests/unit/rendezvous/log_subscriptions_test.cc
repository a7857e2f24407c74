// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/observe/log_subscriptions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "rendezvous/base/limits.h"

namespace ddprun {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr LinkId kLinkA{1};
constexpr LinkId kLinkB{2};

Member Node(const std::string& host, int rank, LinkId link) {
  Member node;
  node.join.node_id = NodeId{"id-" + host};
  node.join.host = host;
  node.node_rank = rank;
  node.link = link;
  return node;
}
Member A() { return Node("a", 0, kLinkA); }
Member B() { return Node("b", 1, kLinkB); }

// Subscriptions of one run, whose members a test sets.
class Desk {
 public:
  WatchId Open(const RunQuestion& question, const std::vector<Member>& nodes,
               LogSubscriptions::Effects& effects, const std::vector<std::string>& events = {}) {
    run_ = MakeRun("job");
    for (const Member& node : nodes) run_.members[node.join.node_id] = node;
    Reindex(run_);
    return subscriptions_.Open(run_, question, events, effects);
  }
  LogSubscriptions::Effects Close(WatchId id) { return subscriptions_.Close(run_, id); }
  LogSubscriptions::Effects Here(const Member& node) {
    run_.members[node.join.node_id] = node;
    Reindex(run_);
    return subscriptions_.Update(run_, node.join.node_id);
  }
  LogSubscriptions::Effects Gone(const Member& node) {
    run_.members.erase(node.join.node_id);
    Reindex(run_);
    return subscriptions_.Update(run_, node.join.node_id);
  }
  LogSubscriptions::Effects Receive(LinkId link, LogLines lines) {
    return subscriptions_.Receive(run_, link, std::move(lines));
  }
  void Report(const std::string& sentence, const std::string& json) {
    subscriptions_.Report(sentence, json);
  }
  void Finish(const std::optional<Verdict>& verdict) { subscriptions_.Finish(verdict); }
  LogSubscriptions::Taken Take(WatchId id) { return subscriptions_.Take(run_, id); }
  bool empty() const { return subscriptions_.empty(); }

 private:
  RunState run_;
  LogSubscriptions subscriptions_;
};

RunQuestion Question(bool follow) {
  RunQuestion question;
  question.output = true;
  question.watch.lines = 10;
  question.watch.follow = follow;
  return question;
}

LogLines Lines(std::uint64_t number, const std::string& text, bool tail_end = false) {
  LogLines lines{.watch = 1, .number = number, .left_out = 0, .lines = {}, .tail_end = tail_end};
  if (!text.empty()) lines.lines.push_back({0, 1, false, "[0] ", text});
  return lines;
}

// What a reader who takes all there is gets.
std::vector<RunNews> TakeAll(Desk& desk, WatchId watch, bool* over = nullptr,
                             std::vector<std::pair<LinkId, Directive>>* told = nullptr) {
  std::vector<RunNews> all;
  while (true) {
    LogSubscriptions::Taken taken = desk.Take(watch);
    if (told != nullptr) {
      for (auto& directive : taken.effects.directives) told->push_back(std::move(directive));
    }
    if (!taken.news.has_value()) {
      if (over != nullptr) *over = taken.over;
      return all;
    }
    all.push_back(*std::move(taken.news));
  }
}

const LogWatches& WatchesOf(const std::pair<LinkId, Directive>& told) {
  return std::get<LogWatches>(told.second);
}

TEST(LogSubscriptionsTest, WhatWasSaidBeforeEndsWhenAllNodesHaveAnswered) {
  Desk desk;
  LogSubscriptions::Effects effects;
  const WatchId watch = desk.Open(Question(false), {A(), B()}, effects);
  ASSERT_THAT(effects.directives, SizeIs(2));
  EXPECT_EQ(WatchesOf(effects.directives[0]).watches[0].lines, 10);
  EXPECT_THAT(TakeAll(desk, watch),
              ElementsAre(RunNews(WatchBegun{"job", {"a (node rank 0)", "b (node rank 1)"}, {}})));
  desk.Receive(kLinkA, Lines(1, "hello", true));
  bool over = true;
  EXPECT_THAT(TakeAll(desk, watch, &over), SizeIs(1));
  EXPECT_FALSE(over);
  desk.Receive(kLinkB, Lines(1, "", true));
  const std::vector<RunNews> rest = TakeAll(desk, watch, &over);
  EXPECT_EQ(rest.back(), RunNews(TailsEnd{}));
  EXPECT_TRUE(over);
  // Both nodes have forgotten it by themselves.
  EXPECT_THAT(desk.Close(watch).directives, IsEmpty());
}

TEST(LogSubscriptionsTest, ANodeThatIsGoneIsNotWaitedFor) {
  Desk desk;
  LogSubscriptions::Effects effects;
  Member away = B();
  away.link.reset();
  const Member third = Node("c", 2, LinkId{3});
  const WatchId watch = desk.Open(Question(false), {A(), away, third}, effects);
  EXPECT_THAT(std::get<WatchBegun>(TakeAll(desk, watch)[0]).away, ElementsAre("b (node rank 1)"));
  desk.Receive(kLinkA, Lines(1, "", true));
  bool over = false;
  TakeAll(desk, watch, &over);
  EXPECT_FALSE(over);
  desk.Gone(third);
  EXPECT_THAT(TakeAll(desk, watch, &over), ElementsAre(RunNews(TailsEnd{})));
  EXPECT_TRUE(over);
}

TEST(LogSubscriptionsTest, LinesAreTakenWhenTheReaderHasTakenThem) {
  Desk desk;
  LogSubscriptions::Effects effects;
  const WatchId watch = desk.Open(Question(true), {A()}, effects);
  TakeAll(desk, watch);
  EXPECT_THAT(desk.Receive(kLinkA, Lines(1, "hello", true)).directives, IsEmpty());
  std::vector<std::pair<LinkId, Directive>> told;
  TakeAll(desk, watch, nullptr, &told);
  ASSERT_THAT(told, SizeIs(1));
  EXPECT_EQ(told[0].second, Directive(LogsTaken{1, 1}));
}

TEST(LogSubscriptionsTest, AReaderWhoTakesNothingLosesLinesAndIsToldHowMany) {
  Desk desk;
  LogSubscriptions::Effects effects;
  const WatchId watch = desk.Open(Question(true), {A()}, effects);
  const std::string long_line(1u << 20, 'x');
  std::uint64_t number = 0;
  for (std::size_t bytes = 0; bytes < 2 * kWatchBytesMax; bytes += long_line.size()) {
    LogSubscriptions::Effects none = desk.Receive(kLinkA, Lines(++number, long_line));
    EXPECT_THAT(none.directives, IsEmpty());  // the node waits: it has a window of its own
  }
  desk.Finish(std::nullopt);
  bool over = false;
  std::vector<std::pair<LinkId, Directive>> told;
  const std::vector<RunNews> all = TakeAll(desk, watch, &over, &told);
  EXPECT_TRUE(over);
  EXPECT_EQ(std::get<LogsTaken>(told.back().second).number, number);
  std::uint64_t shown = 0;
  std::uint64_t left_out = 0;
  for (const RunNews& news : all) {
    const auto* said = std::get_if<WorkerLines>(&news);
    if (said == nullptr) continue;
    shown += said->lines.lines.size();
    left_out += said->lines.left_out;
  }
  EXPECT_GT(left_out, 0u);
  EXPECT_EQ(shown + left_out, number);
  EXPECT_EQ(all.back(), RunNews(RunOver{}));
}

TEST(LogSubscriptionsTest, AReaderWhoTakesAllLosesNothingHoweverLongItReads) {
  Desk desk;
  LogSubscriptions::Effects effects;
  const WatchId watch = desk.Open(Question(true), {A()}, effects);
  TakeAll(desk, watch);
  const std::string long_line(1u << 20, 'x');
  for (std::uint64_t number = 1; number <= 2 * kWatchBytesMax / long_line.size(); ++number) {
    desk.Receive(kLinkA, Lines(number, long_line));
    const std::vector<RunNews> news = TakeAll(desk, watch);
    ASSERT_THAT(news, SizeIs(1)) << number;
    const auto* said = std::get_if<WorkerLines>(&news[0]);
    ASSERT_NE(said, nullptr);
    EXPECT_THAT(said->lines.lines, SizeIs(1)) << number;
    EXPECT_EQ(said->lines.left_out, 0u);
  }
}

TEST(LogSubscriptionsTest, ANodeThatComesBackIsToldHowFarItWasHeard) {
  Desk desk;
  LogSubscriptions::Effects effects;
  desk.Open(Question(true), {A(), B()}, effects);
  desk.Receive(kLinkA, Lines(7, "hello"));
  desk.Gone(A());
  Member again = A();
  again.link = LinkId{9};
  const LogSubscriptions::Effects back = desk.Here(again);
  ASSERT_THAT(back.directives, SizeIs(1));
  EXPECT_EQ(back.directives[0].first, LinkId{9});
  const LogWatch& told = WatchesOf(back.directives[0]).watches[0];
  EXPECT_TRUE(told.resumed);
  EXPECT_EQ(told.received, 7u);
  // What it says again is not shown twice.
  LogSubscriptions::Effects again_said = desk.Receive(LinkId{9}, Lines(7, "hello"));
  EXPECT_THAT(again_said.awake, IsEmpty());
  EXPECT_THAT(desk.Receive(LinkId{9}, Lines(8, "more")).awake, SizeIs(1));
  // Nothing has changed: nothing is said.
  EXPECT_THAT(desk.Here(again).directives, IsEmpty());
}

TEST(LogSubscriptionsTest, OneWhoGoesIsTakenFromTheList) {
  Desk desk;
  LogSubscriptions::Effects effects;
  const WatchId first = desk.Open(Question(true), {A()}, effects);
  const WatchId second = desk.Open(Question(true), {A()}, effects);
  const LogSubscriptions::Effects one_less = desk.Close(first);
  ASSERT_THAT(one_less.directives, SizeIs(1));
  EXPECT_THAT(WatchesOf(one_less.directives[0]).watches, SizeIs(1));
  const LogSubscriptions::Effects none_left = desk.Close(second);
  ASSERT_THAT(none_left.directives, SizeIs(1));
  EXPECT_THAT(WatchesOf(none_left.directives[0]).watches, IsEmpty());
  EXPECT_TRUE(desk.empty());
}

TEST(LogSubscriptionsTest, OnlyTheNodesThatAreNamedAreAsked) {
  for (const char* name : {"1", "b", "id-b"}) {
    Desk desk;
    LogSubscriptions::Effects effects;
    RunQuestion question = Question(true);
    question.nodes = {name};
    desk.Open(question, {A(), B()}, effects);
    ASSERT_THAT(effects.directives, SizeIs(1)) << name;
    EXPECT_EQ(effects.directives[0].first, kLinkB);
    // A node that takes the rank later is asked then.
    const Member other = Node("c", 1, LinkId{3});
    EXPECT_THAT(desk.Here(other).directives, SizeIs(std::string(name) == "1" ? 1 : 0)) << name;
  }
}

TEST(LogSubscriptionsTest, WhoWantsTheEndAloneHearsNothingElse) {
  Desk desk;
  LogSubscriptions::Effects effects;
  RunQuestion question;
  question.watch.follow = true;
  const WatchId watch = desk.Open(question, {A()}, effects);
  EXPECT_THAT(effects.directives, IsEmpty());
  Verdict verdict;
  verdict.exit_code = 7;
  desk.Finish(verdict);
  desk.Finish(verdict);  // nothing the second time
  bool over = false;
  const std::vector<RunNews> all = TakeAll(desk, watch, &over);
  ASSERT_THAT(all, SizeIs(2));
  EXPECT_EQ(all[1], RunNews(RunOver{verdict}));
  EXPECT_TRUE(over);
}

TEST(LogSubscriptionsTest, AWatcherOfEventsGetsThoseThatAreKeptAndThenNewOnes) {
  Desk desk;
  LogSubscriptions::Effects effects;
  RunQuestion question;
  question.events = true;
  question.watch.follow = true;
  const WatchId watch = desk.Open(question, {A()}, effects, {"{1}", "{2}"});
  EXPECT_THAT(effects.directives, IsEmpty());  // no node is asked for anything
  desk.Report("a sentence", "{3}");
  desk.Report("", "{4}");
  desk.Finish(std::nullopt);
  desk.Report("after the end", "{5}");
  std::vector<RunNews> news = TakeAll(desk, watch);
  ASSERT_THAT(news, SizeIs(6));
  for (int i = 1; i <= 4; ++i)
    EXPECT_EQ(std::get<RunEventLine>(news[static_cast<std::size_t>(i)]).json,
              "{" + std::to_string(i) + "}");
  EXPECT_TRUE(std::holds_alternative<RunOver>(news[5]));
}

TEST(LogSubscriptionsTest, WithoutFollowTheKeptEventsAreAll) {
  Desk desk;
  LogSubscriptions::Effects effects;
  RunQuestion question;
  question.events = true;
  const WatchId watch = desk.Open(question, {A()}, effects, {"{1}"});
  desk.Report("later", "{2}");
  bool over = false;
  EXPECT_THAT(TakeAll(desk, watch, &over), SizeIs(2));
  EXPECT_TRUE(over);
}

}  // namespace
}  // namespace ddprun
