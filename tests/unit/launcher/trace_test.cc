// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "launcher/base/limits.h"
#include "launcher/trace/run_trace.h"

namespace ddprun {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::StartsWith;
using Json = nlohmann::json;
using std::chrono::seconds;

constexpr char kParent[] = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
const TraceContext kRun{"0af7651916cd43dd8448eb211c80319c", "00f067aa0ba902b7"};

TraceSettings Read(const std::map<std::string, std::string>& variables) {
  return ReadTraceSettings(
      [&](const std::string& name) -> std::optional<std::string> {
        const auto it = variables.find(name);
        return it == variables.end() ? std::nullopt : std::optional(it->second);
      },
      "a");
}

TraceTime At(int second) { return TraceTime(seconds(1000 + second)); }

Start RoundOf(int number) {
  Start start;
  start.round = RoundId{static_cast<std::uint64_t>(number)};
  start.run_id = "job7";
  start.world_size = 4;
  start.traceparent = ToTraceparent(kRun);
  return start;
}

Stop Killed(int round, bool last) {
  Stop stop{.round = RoundId{static_cast<std::uint64_t>(round)}, .cause = {}, .last = last};
  stop.cause.kind = FailureKind::kWorkerSignaled;
  stop.cause.rank = 3;
  stop.cause.signal = 9;
  stop.cause.host = "b";
  return stop;
}

TEST(TraceSettingsTest, AVariableOfTracesComesBeforeThatOfAll) {
  EXPECT_EQ(Read({}).url, "");
  EXPECT_EQ(Read({{"OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318"}}).url,
            "http://c:4318/v1/traces");
  EXPECT_EQ(Read({{"OTEL_EXPORTER_OTLP_ENDPOINT", "https://c/otlp/"}}).url,
            "https://c/otlp/v1/traces");
  const TraceSettings both = Read({{"OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318"},
                                   {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://d/x"},
                                   {"OTEL_EXPORTER_OTLP_HEADERS", "a=1"},
                                   {"OTEL_EXPORTER_OTLP_TRACES_HEADERS", "k = v%201 , key=a=b"}});
  EXPECT_EQ(both.url, "http://d/x");
  EXPECT_THAT(both.headers, ElementsAre(Pair("k", "v 1"), Pair("key", "a=b")));
  EXPECT_EQ(both.warning, "");
}

TEST(TraceSettingsTest, TracesAreOffWhereAVariableSaysSo) {
  for (const std::pair<const std::string, std::string>& off :
       {std::pair<const std::string, std::string>{"OTEL_SDK_DISABLED", "True"},
        {"OTEL_TRACES_EXPORTER", "none"},
        {"OTEL_TRACES_EXPORTER", "console"},
        {"TRACEPARENT", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"}}) {
    EXPECT_EQ(Read({{"OTEL_EXPORTER_OTLP_ENDPOINT", "http://c"}, off}).url, "") << off.second;
  }
  EXPECT_NE(Read({{"OTEL_EXPORTER_OTLP_ENDPOINT", "http://c"},
                  {"OTEL_SDK_DISABLED", "false"},
                  {"OTEL_TRACES_EXPORTER", "console,otlp"}})
                .url,
            "");
}

TEST(TraceSettingsTest, WhatCannotBeUsedIsNamed) {
  const auto warning = [](const std::string& name, const std::string& value) {
    return Read({{"OTEL_EXPORTER_OTLP_ENDPOINT", "http://c"}, {name, value}}).warning;
  };
  EXPECT_EQ(warning("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json"), "");
  EXPECT_THAT(warning("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "grpc"), HasSubstr("http/json"));
  EXPECT_THAT(warning("OTEL_EXPORTER_OTLP_HEADERS", "a=1%0d%0ab: 2"), HasSubstr("HEADERS"));
  EXPECT_THAT(warning("OTEL_RESOURCE_ATTRIBUTES", "a"), HasSubstr("RESOURCE_ATTRIBUTES"));
  const TraceSettings bad = Read({{"OTEL_EXPORTER_OTLP_ENDPOINT", "c:4317"}});
  EXPECT_EQ(bad.url, "");
  EXPECT_THAT(bad.warning, HasSubstr("http://"));
}

TEST(TraceSettingsTest, TheResourceIsNamedByTheUser) {
  const TraceSettings settings =
      Read({{"OTEL_EXPORTER_OTLP_ENDPOINT", "http://c"},
            {"OTEL_RESOURCE_ATTRIBUTES", "service.name=x,team=vision%2C3"},
            {"OTEL_SERVICE_NAME", "training"}});
  const std::map<std::string, std::string> all(settings.attributes.begin(),
                                               settings.attributes.end());
  EXPECT_EQ(all.at("service.name"), "training");
  EXPECT_EQ(all.at("team"), "vision,3");
  EXPECT_EQ(all.at("host.name"), "a");
  EXPECT_EQ(all.size(), settings.attributes.size());
}

TEST(TraceContextTest, OnlyATraceparentIsRead) {
  const auto parent = ParseTraceparent(kParent);
  ASSERT_TRUE(parent.has_value());
  EXPECT_EQ(ToTraceparent(*parent), kParent);
  const std::string text = kParent;
  for (const std::string& bad :
       {std::string(), text + "-x", text.substr(1), text.substr(0, 53), "ff" + text.substr(2),
        "00-00000000000000000000000000000000" + text.substr(35),
        text.substr(0, 36) + "B" + text.substr(37), text.substr(0, 53) + "0g",
        text.substr(0, 36) + "0000000000000000-01"}) {
    EXPECT_FALSE(ParseTraceparent(bad).has_value()) << bad;
  }
  EXPECT_TRUE(ParseTraceparent("01" + text.substr(2) + "-later").has_value());
}

TEST(TraceContextTest, WorkersOfARoundHaveItsSpanOnEveryNode) {
  Start start = RoundOf(2);
  const TraceContext round = SpanOfRun(kRun, kRoundSpan, 2);
  EXPECT_EQ(TraceVariable(start), "TRACEPARENT=" + ToTraceparent(round));
  EXPECT_EQ(round.trace_id, kRun.trace_id);
  EXPECT_NE(round, SpanOfRun(kRun, kRoundSpan, 3));
  start.traceparent = "";
  EXPECT_EQ(TraceVariable(start), std::nullopt);
  start.traceparent = "x\nLD_PRELOAD=y";
  EXPECT_EQ(TraceVariable(start), std::nullopt);
}

TEST(RunTraceTest, ARunThatRecovers) {
  RunTrace trace(kRun, "b7ad6b7169203331", At(0));
  trace.OnStart(RoundOf(1), At(1));
  trace.OnStart(RoundOf(1), At(2));  // again, after the connection broke
  EXPECT_THAT(trace.TakeEnded(), IsEmpty());
  trace.OnStop(Killed(1, false), At(10));
  trace.OnStart(RoundOf(2), At(13));
  Verdict verdict;
  verdict.success = true;
  verdict.restart_count = 1;
  trace.OnFinish(verdict, At(20));
  trace.OnEnd(0, "", 0, At(21));
  const std::vector<Span> spans = trace.TakeEnded();
  ASSERT_EQ(spans.size(), 4u);
  const Span &first = spans[0], &recovery = spans[1], &second = spans[2], &run = spans[3];
  EXPECT_THAT((std::vector{first.name, recovery.name, second.name, run.name}),
              ElementsAre("round", "recovery", "round", "run"));
  EXPECT_EQ(first.context, SpanOfRun(kRun, kRoundSpan, 1));
  EXPECT_EQ(second.context, SpanOfRun(kRun, kRoundSpan, 2));
  for (const Span* span : {&first, &recovery, &second}) EXPECT_EQ(span->parent, kRun.span_id);
  EXPECT_EQ(run.context, kRun);
  EXPECT_EQ(run.parent, "b7ad6b7169203331");
  EXPECT_EQ((std::vector{first.begin, first.end, recovery.begin, recovery.end, second.begin,
                         second.end, run.begin, run.end}),
            (std::vector{At(1), At(10), At(10), At(13), At(13), At(20), At(0), At(21)}));
  EXPECT_THAT(first.error.value_or(""), HasSubstr("rank 3"));
  EXPECT_FALSE(recovery.error || second.error || run.error);
}

TEST(RunTraceTest, TheEndOfAFailedRunNamesItsCause) {
  RunTrace trace(kRun, "", At(0));
  trace.OnStart(RoundOf(1), At(1));
  trace.OnStop(Killed(1, true), At(3));
  Verdict verdict;
  verdict.cause = Killed(1, true).cause;
  trace.OnFinish(verdict, At(4));
  trace.OnEnd(137, "ddprun: whatever\nit says", 0, At(5));
  const std::vector<Span> spans = trace.TakeEnded();
  ASSERT_EQ(spans.size(), 2u);  // no recovery
  EXPECT_EQ(spans[1].error, spans[0].error);
  EXPECT_THAT(*spans[1].error, HasSubstr("SIGKILL"));

  RunTrace early(kRun, "", At(0));
  early.OnEnd(1, "ddprun: nobody came\nmore", 0, At(5));
  EXPECT_EQ(early.TakeEnded().at(0).error, "ddprun: nobody came");
}

TEST(RunTraceTest, ANodeThatLeavesAsPlannedIsNoError) {
  RunTrace trace(kRun, "", At(0));
  trace.OnStart(RoundOf(1), At(1));
  Stop drained = Killed(1, false);
  drained.cause.kind = FailureKind::kNodeDrained;
  trace.OnStop(drained, At(3));
  EXPECT_FALSE(trace.TakeEnded().at(0).error.has_value());
}

TEST(RunTraceTest, ACheckpointLastsWhileRankZeroSaysSo) {
  RunTrace trace(kRun, "", At(0));
  trace.OnProgress(ParseProgress("SECTION=checkpoint"), At(0));  // in no round
  trace.OnStart(RoundOf(1), At(1));
  trace.OnProgress(ParseProgress("STEP=5\nSECTION=forward"), At(2));
  trace.OnProgress(ParseProgress("STEP=7\nSECTION=checkpoint"), At(3));
  trace.OnProgress(ParseProgress("RATE=7"), At(4));  // says nothing of it
  trace.OnProgress(ParseProgress("STEP=8\nSECTION=forward"), At(6));
  trace.OnProgress(ParseProgress("DOING=checkpoint"), At(7));
  trace.OnStop(Killed(1, false), At(9));
  const std::vector<Span> spans = trace.TakeEnded();
  ASSERT_EQ(spans.size(), 3u);
  EXPECT_EQ((std::vector{spans[0].begin, spans[0].end, spans[1].begin, spans[1].end}),
            (std::vector{At(3), At(6), At(7), At(9)}));
  for (int i : {0, 1}) {
    EXPECT_EQ(spans[i].name, "checkpoint");
    EXPECT_EQ(spans[i].parent, spans[2].context.span_id);
  }
  EXPECT_NE(spans[0].context, spans[1].context);
  EXPECT_FALSE(spans[0].error.has_value());
  EXPECT_TRUE(spans[1].error.has_value());
}

TEST(RunTraceTest, AClockThatIsSetBackMakesNoNegativeTime) {
  RunTrace trace(kRun, "", At(0));
  trace.OnStart(RoundOf(1), At(100));
  trace.OnStop(Killed(1, false), At(50));
  EXPECT_EQ(trace.TakeEnded().at(0).end, At(100));
}

TEST(OtlpJsonTest, HasTheNamesAndTypesOfTheStandard) {
  Span span{.name = "round",
            .context = kRun,
            .parent = "b7ad6b7169203331",
            .begin = TraceTime(std::chrono::nanoseconds(1544712660000000001)),
            .end = TraceTime(std::chrono::nanoseconds(1544712661000000000)),
            .error = "it \"died\" \xff" + std::string(2000, 'x'),
            .attributes = {{"round", std::int64_t{1} << 60}, {"share", 0.5}, {"why", "so"}}};
  const Json whole = Json::parse(
      OtlpJson({span, Span{.name = "run", .context = kRun}}, {{"service.name", "training"}}));
  const Json& resource = whole["resourceSpans"][0];
  EXPECT_EQ(resource["resource"]["attributes"],
            Json::parse(R"([{"key":"service.name","value":{"stringValue":"training"}}])"));
  EXPECT_EQ(resource["scopeSpans"][0]["scope"]["name"], "ddprun");
  Json one = resource["scopeSpans"][0]["spans"][0];
  EXPECT_EQ(one["status"]["code"], 2);
  EXPECT_THAT(one["status"]["message"].get<std::string>(), StartsWith("it \"died\" "));
  EXPECT_LE(one["status"]["message"].get<std::string>().size(), kTraceTextBytesMax + 16);
  one.erase("status");
  EXPECT_EQ(one, Json::parse(R"({"traceId":"0af7651916cd43dd8448eb211c80319c",
      "spanId":"00f067aa0ba902b7","parentSpanId":"b7ad6b7169203331","name":"round","kind":1,
      "startTimeUnixNano":"1544712660000000001","endTimeUnixNano":"1544712661000000000",
      "attributes":[{"key":"ddprun.round","value":{"intValue":"1152921504606846976"}},
                    {"key":"ddprun.share","value":{"doubleValue":0.5}},
                    {"key":"ddprun.why","value":{"stringValue":"so"}}]})"));
  const Json& root = resource["scopeSpans"][0]["spans"][1];
  EXPECT_FALSE(root.contains("parentSpanId"));
  EXPECT_EQ(root["status"], Json::object());
}

}  // namespace
}  // namespace ddprun
