// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "launcher/base/limits.h"
#include "launcher/runs/run_sample.h"
#include "launcher/web/web_hub.h"
#include "launcher/web/web_pages.h"
#include "launcher/web/web_state.h"

namespace ddprun {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::StartsWith;
using Json = nlohmann::ordered_json;

SampledNode Node(const std::string& id, NodeState state = NodeState::kRunning) {
  return {.id = id,
          .host = "host-" + id,
          .node_rank = 0,
          .state = state,
          .rank_first = 0,
          .ranks = 2,
          .step = 5,
          .rate = 10,
          .section = "forward",
          .slow_rank = -1,
          .hung = {1}};
}

RunSample Sample(std::int64_t time_ms, std::vector<SampledNode> nodes = {}) {
  RunSample sample;
  sample.time_ms = time_ms;
  sample.round = 1;
  sample.world_size = 2;
  sample.step = time_ms / 1000;
  sample.rate = 20;
  sample.loss = 0.5;
  sample.accuracy = 0.9;
  sample.nodes = std::move(nodes);
  return sample;
}

// ---- A sample as a line

TEST(RunSampleTest, ALineIsReadAsItWasWritten) {
  const RunSample written = Sample(7000, {Node("a"), Node("b", NodeState::kAway)});
  const auto read = ParseSample(SampleLine(written, 4096));
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->time_ms, 7000);
  EXPECT_EQ(read->step, 7);
  EXPECT_EQ(read->loss, 0.5);
  EXPECT_EQ(read->accuracy, 0.9);
  ASSERT_THAT(*read->nodes, SizeIs(2));
  EXPECT_EQ((*read->nodes)[1].host, "host-b");
  EXPECT_EQ((*read->nodes)[1].state, NodeState::kAway);
}

TEST(RunSampleTest, NodesThatDoNotFitAreLeftOut) {
  const auto read = ParseSample(SampleLine(Sample(7000, {Node("a"), Node("b")}), 100));
  ASSERT_TRUE(read.has_value());
  EXPECT_FALSE(read->nodes.has_value());
}

TEST(RunSampleTest, ALossThatIsNotFiniteIsNoNumber) {
  RunSample sample = Sample(7000);
  sample.loss = std::numeric_limits<double>::infinity();
  const auto read = ParseSample(SampleLine(sample, 4096));
  ASSERT_TRUE(read->loss.has_value());
  EXPECT_NE(*read->loss, *read->loss);
}

TEST(RunSampleTest, WhatIsNoSampleIsNone) {
  for (const char* line : {"", "{", "[]", "{}", R"({"time_ms": "x"})"})
    EXPECT_FALSE(ParseSample(line).has_value()) << line;
  const auto odd = ParseSample(
      R"({"time_ms": 5, "nodes": [1, ["a", 0, "h", 99, 0, 1], ["a", 0, "h", 2, 0, 1]]})");
  EXPECT_THAT(*odd->nodes, SizeIs(1));
}

TEST(RunSampleTest, ALongRunIsSampledSeldom) {
  using namespace std::chrono_literals;
  EXPECT_EQ(SampleInterval(0ms), 1000ms);
  EXPECT_EQ(SampleInterval(1h), 7200ms);
  EXPECT_EQ(SampleInterval(1000h), 60'000ms);
}

// ---- The state of a page

Json Parse(const std::string& text) { return Json::parse(text); }

TEST(WebStateTest, APageBeginsWithTheWholeAndGetsWhatChanges) {
  WebState state("job");
  EXPECT_EQ(Parse(state.Snapshot(false))["run"]["name"], "job");
  state.OnSample(Sample(1000, {Node("a")}));
  Json delta = Parse(state.TakeDelta());
  EXPECT_THAT(delta["samples"], SizeIs(1));
  EXPECT_EQ(delta["nodes"]["0"][0], "host-a");
  EXPECT_EQ(delta["nodes"]["0"][9], Json::array({1}));
  EXPECT_EQ(delta["changes"][0], Json::array({1000, 0, 0, static_cast<int>(NodeState::kRunning)}));
  EXPECT_EQ(state.TakeDelta(), "");
  SampledNode later = Node("a");
  later.step = 6;
  state.OnSample(Sample(2000, {later}));
  delta = Parse(state.TakeDelta());
  EXPECT_EQ(delta["moves"]["0"][0], 6);  // and nothing else of it
  EXPECT_FALSE(delta.contains("nodes"));
  EXPECT_EQ(Parse(state.Snapshot(true))["control"], true);
}

TEST(WebStateTest, ANodeThatIsNoLongerNamedIsGone) {
  WebState state("job");
  state.OnSample(Sample(1000, {Node("a"), Node("b")}));
  state.OnSample(Sample(2000, {Node("b")}));
  const Json whole = Parse(state.Snapshot(false));
  EXPECT_EQ(whole["nodes"]["0"][2], 0);
  EXPECT_EQ(whole["nodes"]["1"][2], static_cast<int>(NodeState::kRunning));
  EXPECT_EQ(whole["changes"][2], Json::array({2000, 0, static_cast<int>(NodeState::kRunning), 0}));
}

TEST(WebStateTest, ARunOfAnyLengthHasABoundedNumberOfPoints) {
  WebState state("job");
  for (int i = 1; i <= 50'000; ++i) state.OnSample(Sample(i * 1000));
  const Json samples = Parse(state.Snapshot(false))["samples"];
  EXPECT_LE(samples.size(), kWebPointsMax);
  EXPECT_GE(samples.size(), kWebPointsMax / 4);
  EXPECT_EQ(samples.front()[0], 1000);
  EXPECT_EQ(samples.back()[0], 50'000'000);
}

TEST(WebStateTest, CurvesGoOnWhereTheClockIsSetBack) {
  WebState state("job");
  for (int i = 1; i <= 5; ++i) state.OnSample(Sample(3'600'000 + i * 1000));
  for (int i = 1; i <= 5; ++i) state.OnSample(Sample(i * 1000));
  std::vector<std::int64_t> times;
  for (const Json& point : state.samples()) times.push_back(point[0]);
  EXPECT_TRUE(std::is_sorted(times.begin(), times.end()));
  EXPECT_EQ(times.back(), 3'609'000);
  EXPECT_THAT(times, SizeIs(9));  // the first one after it has the time of the last one before
}

TEST(WebStateTest, AnotherRunIsThereFromTheBeginAndWithoutItsNodes) {
  WebState other("job6");
  for (int i = 1; i <= 3; ++i) other.OnSample(Sample(i * 1000, {Node("a")}));
  WebState state("job7");
  state.Compare(other);
  EXPECT_EQ(state.TakeDelta(), "");
  const Json whole = Parse(state.Snapshot(false));
  ASSERT_THAT(whole["others"], SizeIs(1));
  EXPECT_EQ(whole["others"][0]["name"], "job6");
  EXPECT_THAT(whole["others"][0]["samples"], SizeIs(3));
  EXPECT_EQ(whole["others"][0]["samples"][2][8], 0.9);
  EXPECT_TRUE(whole["nodes"].empty());
}

TEST(WebStateTest, AnEventThatComesTwiceIsShownOnce) {
  WebState state("job");
  const Json event = {{"event", "round.started"}, {"time", "2026-11-29T03:04:05Z"}, {"round", 2}};
  for (int i = 0; i < 2; ++i) state.OnEvent(event.dump(), event, "round 2 begins");
  const Json events = Parse(state.Snapshot(false))["events"];
  ASSERT_THAT(events, SizeIs(1));
  EXPECT_EQ(events[0][0], 1795921445000);
  EXPECT_EQ(events[0][2], "round 2 begins");
}

TEST(WebStateTest, LinesAreBoundedAndPrintable) {
  WebState state("job");
  for (std::size_t i = 0; i < kWebLinesMax + 5; ++i)
    state.OnLine("\x1b[31m" + std::string(5000, 'x') + "\xff");
  const Json lines = Parse(state.Snapshot(false))["lines"];
  EXPECT_THAT(lines, SizeIs(kWebLinesMax));
  EXPECT_LE(lines[0].get<std::string>().size(), kWebLineBytesMax + 8);
  EXPECT_THAT(lines[0].get<std::string>(), Not(HasSubstr("\x1b")));
}

TEST(WebStateTest, WhatARunPrintsEndsNoScriptOfThePage) {
  WebState state("job");
  state.OnLine("</script><script>alert(1)</script>");
  const std::string page = WebPage(state.Snapshot(false), "0123");
  EXPECT_THAT(page, Not(HasSubstr("alert(1)</script>")));
  EXPECT_THAT(page, HasSubstr("connect-src 'none'"));
  EXPECT_THAT(WebPage("null", "0123"), HasSubstr("connect-src 'self'"));
}

// ---- Between those who change it and the pages

TimePoint Soon() { return std::chrono::steady_clock::now() + std::chrono::seconds(20); }

TEST(WebHubTest, APageGetsTheWholeAndThenEachChange) {
  WebHub hub("job", false);
  std::uint64_t seen = 0;
  auto message = hub.Next(seen, Soon());
  ASSERT_TRUE(message.ok() && message->has_value());
  EXPECT_TRUE((*message)->whole);
  EXPECT_FALSE(hub.Next(seen, std::chrono::steady_clock::now())->has_value());
  for (const char* line : {"one", "two"}) {
    hub.Change([&](WebState& state) { state.OnLine(line); });
    hub.Publish();
  }
  for (const char* line : {"one", "two"}) {
    message = hub.Next(seen, Soon());
    EXPECT_FALSE((*message)->whole);
    EXPECT_THAT((*message)->json, HasSubstr(line));
  }
}

TEST(WebHubTest, APageThatIsFarBehindGetsTheWholeAnew) {
  WebHub hub("job", false);
  std::uint64_t seen = 0;
  ASSERT_TRUE(hub.Next(seen, Soon()).ok());
  const std::string line(kWebLineBytesMax, 'x');
  for (std::size_t bytes = 0; bytes < 2 * kWebQueueBytesMax; bytes += line.size()) {
    hub.Change([&](WebState& state) { state.OnLine(line); });
    hub.Publish();
  }
  EXPECT_TRUE((**hub.Next(seen, Soon())).whole);
  EXPECT_FALSE(hub.Next(seen, std::chrono::steady_clock::now())->has_value());
}

TEST(WebHubTest, ItsEndWakesWhoWaits) {
  WebHub hub("job", false);
  std::uint64_t seen = 0;
  ASSERT_TRUE(hub.Next(seen, Soon()).ok());
  std::thread page([&] { EXPECT_TRUE(absl::IsOutOfRange(hub.Next(seen, Soon()).status())); });
  hub.End(std::chrono::seconds(20));
  page.join();
}

TEST(WebHubTest, ItsEndWaitsUntilThosePagesAreGoneThatFollow) {
  WebHub hub("job", false);
  std::string last;
  bool gone = false;
  auto follower = std::make_unique<WebHub::Follower>(hub);
  EXPECT_TRUE(hub.HasFollowers());
  std::thread page([&] {
    std::uint64_t seen = 0;
    for (auto message = hub.Next(seen, Soon()); message.ok(); message = hub.Next(seen, Soon())) {
      if (message->has_value()) last = (*message)->json;
      std::this_thread::yield();
    }
    gone = true;
    follower.reset();
  });
  for (int line = 0; line < 100; ++line) {
    hub.Change([&](WebState& state) { state.OnLine("line " + std::to_string(line)); });
    hub.Publish();
  }
  hub.End(std::chrono::seconds(20));
  EXPECT_TRUE(gone);
  EXPECT_FALSE(hub.HasFollowers());
  page.join();
  EXPECT_THAT(last, HasSubstr("line 99"));
}

TEST(WebHubTest, ItsEndDoesNotWaitForAPageThatReadsNothing) {
  WebHub hub("job", false);
  const WebHub::Follower follower(hub);
  hub.End(std::chrono::milliseconds(1));
  EXPECT_TRUE(hub.HasFollowers());
}

// ---- Who gets what

struct Answered final : WebReply {
  void Send(int its_status, const Headers& its_headers, const std::string& its_body) override {
    Begin(its_status, its_headers);
    body = its_body;
  }
  void Begin(int its_status, const Headers& its_headers) override {
    status = its_status;
    headers = its_headers;
  }
  bool Write(const std::string& text) override {
    body += text;
    return false;  // nobody reads any more
  }
  std::string header(const std::string& name) const {
    for (const auto& [key, value] : headers) {
      if (key == name) return value;
    }
    return "";
  }

  int status = 0;
  Headers headers;
  std::string body;
};

class WebPagesTest : public ::testing::Test {
 protected:
  Answered Ask(const WebRequest& request, bool control = false) {
    WebPages::Control orders;
    if (control) {
      orders.stop = [] { return absl::StatusOr<std::string>("stopped"); };
      orders.drain = [](const std::string& node) {
        return absl::StatusOr<std::string>("drained " + node);
      };
    }
    Answered answered;
    WebPages("secret", hub_, std::move(orders)).Answer(request, answered);
    return answered;
  }
  static WebRequest LetIn(const std::string& path) {
    return {.method = "GET",
            .path = path,
            .query = "",
            .host = "localhost:80",
            .cookie = "a=b; ddprun-page-8000=other; ddprun-page-80=secret",
            .origin = ""};
  }

  WebHub hub_{"job", false};
};

TEST_F(WebPagesTest, TheTokenBecomesACookie) {
  WebRequest request{.method = "GET",
                     .path = "/",
                     .query = "token=secret",
                     .host = "127.0.0.1:80",
                     .cookie = "",
                     .origin = ""};
  const Answered answered = Ask(request);
  EXPECT_EQ(answered.status, 303);
  EXPECT_THAT(answered.header("Set-Cookie"),
              StartsWith("ddprun-page-80=secret; HttpOnly; SameSite=Strict"));
  for (const char* wrong : {"token=", "token=secre", "token=secrets", "secret", "x=secret"}) {
    request.query = wrong;
    EXPECT_EQ(Ask(request).status, 403) << wrong;
  }
}

TEST_F(WebPagesTest, WithoutTheCookieThereIsNothing) {
  for (const char* cookie : {"", "ddprun-page-80=", "ddprun-page-80=secre",
                             "xddprun-page-80=secret", "ddprun-page-8000=secret", "a=b"}) {
    for (const char* path : {"/", "/events", "/other"}) {
      WebRequest request = LetIn(path);
      request.cookie = cookie;
      EXPECT_EQ(Ask(request).status, 403) << cookie << " " << path;
    }
  }
  EXPECT_EQ(Ask(LetIn("/")).status, 200);
  EXPECT_EQ(Ask(LetIn("/other")).status, 404);
  EXPECT_THAT(Ask(LetIn("/events")).body, StartsWith("event: whole\ndata: {"));
}

TEST_F(WebPagesTest, OtherNamesOfThisMachineAreRefused) {
  for (const char* host : {"", "evil.example", "evil.example:80", "localhost.evil.example:80",
                           "[::2]:80", "127.0.0.1.nip.io"}) {
    WebRequest request = LetIn("/");
    request.host = host;
    EXPECT_EQ(Ask(request).status, 403) << host;
  }
  for (const auto& [host, port] :
       std::vector<std::pair<std::string, std::string>>{{"localhost", ""},
                                                        {"localhost:8080", "8080"},
                                                        {"127.0.0.1:80", "80"},
                                                        {"[::1]:80", "80"}}) {
    WebRequest request = LetIn("/");
    request.host = host;
    request.cookie = "ddprun-page-" + port + "=secret";
    EXPECT_EQ(Ask(request).status, 200) << host;
  }
}

TEST_F(WebPagesTest, OrdersComeFromThePageItselfWhereTheyAreAllowed) {
  WebRequest request = LetIn("/drain");
  request.method = "POST";
  request.query = "node=n1";
  request.origin = "http://localhost:80";
  EXPECT_EQ(Ask(request).status, 403);
  EXPECT_EQ(Ask(request, true).status, 200);
  EXPECT_EQ(Ask(request, true).body, "drained n1\n");
  for (const char* origin :
       {"", "null", "http://localhost:81", "https://localhost:80", "http://evil.example"}) {
    request.origin = origin;
    EXPECT_EQ(Ask(request, true).status, 403) << origin;
  }
}

}  // namespace
}  // namespace ddprun
