// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launcher/ctl/events_text.h"

namespace ddprun {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;
using Json = nlohmann::ordered_json;

Json Verdict(const std::string& kind, const Json& more = Json::object()) {
  Json cause = {
      {"kind", kind},      {"sentence", "rank 3 (local rank 1 on host b, pid 7) did something"},
      {"rank", 3},         {"host", "b"},
      {"advice", nullptr}, {"message", nullptr},
      {"core", nullptr},   {"collectives", nullptr}};
  cause.update(more);
  return {{"exit_code", 5}, {"restarts_used", 2}, {"cause", cause}};
}

Json Event(const std::string& name, double monotonic, const std::string& text) {
  return {{"event", name}, {"monotonic", monotonic}, {"text", text}};
}

TEST(WhyTextTest, EveryKindOfFailureHasItsCauseRankAndNextStep) {
  for (const char* kind : {"worker_exited", "worker_signaled", "spawn_failed", "node_lost",
                           "node_interrupted", "join_timeout", "worker_hung", "collective_failed",
                           "worker_ended_early", "run_stopped", "node_drained", "node_joined"}) {
    const Json why = Explain({.name = "job", .verdict = Verdict(kind)});
    const std::string text = why["text"];
    EXPECT_THAT(text, HasSubstr("Run job failed with exit code 5. The first cause: rank 3 (local"));
    EXPECT_THAT(text, HasSubstr("It was restarted 2 times."));
    EXPECT_THAT(text, HasSubstr(" What to do: ")) << kind;
    EXPECT_THAT(text, Not(HasSubstr("HOST"))) << kind;
    EXPECT_EQ(why["cause"]["rank"], 3);
    EXPECT_EQ(why["state"], "failed");
    EXPECT_TRUE(why["next"].is_string()) << kind;
  }
}

TEST(WhyTextTest, EvidenceComesBeforeWhatTheKindAloneSays) {
  const std::string text = Explain(
      {.name = "job",
       .verdict = Verdict("worker_signaled", {{"advice", "give the job more memory"},
                                              {"message", "ValueError: no such thing"}})})["text"];
  EXPECT_THAT(text, HasSubstr("It said: ValueError: no such thing."));
  EXPECT_THAT(text, ::testing::EndsWith("What to do: Give the job more memory."));
}

TEST(WhyTextTest, WhatPrecededTheEndIsNamedWithItsTime) {
  RunFacts facts{.name = "job", .verdict = Verdict("worker_hung")};
  facts.events = {Event("rank.slow", 100, "rank 9 was slow long before"),
                  Event("node.joined", 990, "node c joined"),
                  Event("rank.slow", 987.7, "rank 2 needs 2.1 times as long"),
                  Event("round.broken", 1000, "round 4 ends: rank 3 did something"),
                  Event("run.finished", 1001, "the run ends")};
  const Json why = Explain(facts);
  ASSERT_THAT(why["before"], SizeIs(1));
  EXPECT_EQ(why["before"][0]["event"], "rank.slow");
  EXPECT_THAT(why["text"].get<std::string>(),
              HasSubstr(" 12.3 s before: Rank 2 needs 2.1 times as long."));
}

TEST(WhyTextTest, ALiveRunSaysWhatItWaitsFor) {
  const Json run = {
      {"phase", "running"},
      {"round", 2},
      {"reason", ""},
      {"restarts_used", 1},
      {"progress", {{"step", 41}, {"age_ms", 12'300}}},
      {"collectives", "rank 0 waits in all_reduce 11; rank 1 has not begun it"},
      {"last_failure", {{"sentence", "rank 1 exited with code 7"}, {"kind", "worker_exited"}}},
      {"verdict", nullptr}};
  const Json why = Explain({.name = "job", .status = run});
  EXPECT_EQ(why["state"], "running");
  EXPECT_TRUE(why["exit_code"].is_null());
  const std::string text = why["text"];
  EXPECT_THAT(text,
              HasSubstr("Run job is running, round 2, step 41, whose last progress was 12.3 s "
                        "ago; rank 0 waits in all_reduce 11; rank 1 has not begun it."));
  EXPECT_THAT(text, HasSubstr("Its last round ended: rank 1 exited with code 7."));
  EXPECT_THAT(text, HasSubstr("dpctl stacks"));
}

TEST(WhyTextTest, ARunWhoseRecorderWasKilledHasItsLastEvent) {
  RunFacts facts{.name = "job"};
  facts.known = KnownRun{.record = {.name = "job", .host = "b"}, .live = false};
  facts.events = {Event("round.started", 5, "round 1 begins: 2 workers on 1 node")};
  const Json why = Explain(facts);
  EXPECT_EQ(why["state"], "lost");
  EXPECT_THAT(why["text"].get<std::string>(),
              HasSubstr("the last event:   round 1 begins: 2 workers on 1 node"));
  EXPECT_THAT(why["next"].get<std::string>(), HasSubstr("on b"));
}

TEST(WhyTextTest, ASuccessNeedsNoAdvice) {
  const Json why = Explain({.name = "job", .verdict = {{"exit_code", 0}, {"cause", nullptr}}});
  EXPECT_EQ(why["text"], "Run job succeeded.");
  EXPECT_TRUE(why["next"].is_null());
}

TEST(EventsTextTest, LinesThatAreNoEventsAreSkipped) {
  EXPECT_FALSE(ParseEvent("{\"event\": ").has_value());
  EXPECT_FALSE(ParseEvent("{\"number\": 3}").has_value());
  EXPECT_FALSE(ParseEvent("[]").has_value());
  const auto event = ParseEvent(R"({"event":"worker.ended","rank":3,"reason":"\u001b[31mx"})");
  ASSERT_TRUE(event.has_value());
  EXPECT_EQ(EventText(*event), "  worker.ended: x, rank 3");
}

}  // namespace
}  // namespace ddprun
