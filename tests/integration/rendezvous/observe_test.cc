// SPDX-License-Identifier: Apache-2.0
// The event log on real files, and the metrics of runs as values.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "rendezvous/base/limits.h"
#include "rendezvous/base/owned_fd.h"
#include "rendezvous/observe/event_log.h"
#include "rendezvous/observe/metrics.h"

namespace ddprun {
namespace {

using ::testing::HasSubstr;

class EventLogTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = ::testing::TempDir() + "/ddprun_events_XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  static RunEvent Named(const std::string& name) {
    RunEvent event;
    event.event = name;
    return event;
  }
  std::vector<std::string> EventsIn(const std::string& path) const {
    std::ifstream file(path);
    std::vector<std::string> names;
    for (std::string line; std::getline(file, line);) {
      names.push_back(nlohmann::json::parse(line)["event"]);
    }
    return names;
  }
  std::string folder_;
};

TEST_F(EventLogTest, IsAppendedTo) {
  for (const std::string name : {"first", "second"}) {
    auto log = EventLog::Open(folder_ + "/log");
    ASSERT_TRUE(log.ok()) << log.status();
    (*log)->Write(Named(name));
    (*log)->Write(Named("end"));
  }
  EXPECT_EQ(EventsIn(folder_ + "/log"),
            (std::vector<std::string>{"first", "end", "second", "end"}));
}

TEST_F(EventLogTest, AFileThatCannotBeIsOneSentence) {
  const auto log = EventLog::Open(folder_ + "/none/log");
  EXPECT_THAT(std::string(log.status().message()), HasSubstr("cannot open the event log"));
}

TEST_F(EventLogTest, AFullDiskHoldsNobodyUp) {
  auto log = EventLog::Open("/dev/full");
  ASSERT_TRUE(log.ok()) << log.status();
  for (int i = 0; i < 100'000; ++i) (*log)->Write(Named("dropped"));
}

TEST_F(EventLogTest, AFullDiskIsSaidOnceAndWhatIsMissingAtTheEnd) {
  std::vector<std::string> said;
  {
    auto log = EventLog::Open("/dev/full", [&](const std::string& one) { said.push_back(one); });
    ASSERT_TRUE(log.ok()) << log.status();
    for (int i = 0; i < 3; ++i) (*log)->Write(Named("dropped"));
  }
  EXPECT_THAT(said, testing::ElementsAre(
                        "the event log /dev/full cannot be written: No space left on device; "
                        "events are missing in it from now on, and the run goes on",
                        "the event log /dev/full lacks 3 events at its end"));
}

// A reader that stops reading, and goes on: what was dropped in between is counted.
TEST_F(EventLogTest, WhatWasDroppedIsSaid) {
  const std::string path = folder_ + "/fifo";
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  OwnedFd reader(open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  auto log = EventLog::Open(path);
  ASSERT_TRUE(log.ok()) << log.status();
  RunEvent large = Named("large");
  large.fields.emplace_back("text", std::string(1000, 'x'));
  for (std::size_t i = 0; i < 3 * kEventLogBytesMax / 1000; ++i) (*log)->Write(large);
  fcntl(reader.get(), F_SETFL, 0);
  std::string text;
  std::string chunk(1 << 20, '\0');
  std::thread closing([&] { log->reset(); });
  while (true) {
    const ssize_t count = read(reader.get(), chunk.data(), chunk.size());
    if (count <= 0) break;
    text.append(chunk.data(), static_cast<std::size_t>(count));
  }
  closing.join();
  EXPECT_THAT(text, HasSubstr("\"event\":\"large\""));
  EXPECT_LT(text.size(), 2 * kEventLogBytesMax);
}

const MetricSeries* Find(const std::vector<MetricSeries>& all, const std::string& name) {
  for (const MetricSeries& series : all) {
    if (series.name == name) return &series;
  }
  return nullptr;
}

TEST(MetricsTest, OfARun) {
  RunStatus run;
  run.run_id = "job";
  run.phase = RunPhase::kSealed;
  run.round = RoundId{3};
  run.nodes = {{.node_id = NodeId{"x"}, .host = "a", .node_rank = 0, .state = NodeState::kRunning},
               {.node_id = NodeId{"y"}, .host = "b", .node_rank = 1, .state = NodeState::kAway}};
  RunObserver observer(nullptr);
  RunNotice note;
  note.kind = NoticeKind::kRoundBroken;
  note.why = Failure{.rank = 2, .exit_code = 7};
  observer.OnNotice("job", note);
  note.kind = NoticeKind::kRestart;
  observer.OnNotice("job", note);
  observer.OnStoreOperations("job", 3);
  observer.OnStoreOperations("job", 2);
  const auto all = ServiceMetrics({run}, observer.Counters());
  for (const MetricSeries& series : all) {
    EXPECT_THAT(series.name, ::testing::StartsWith("ddprun_"));
    EXPECT_FALSE(series.help.empty()) << series.name;
    EXPECT_EQ(series.type == MetricSeries::Type::kCounter,
              series.name.size() > 6 && series.name.substr(series.name.size() - 6) == "_total")
        << series.name;
  }
  ASSERT_NE(Find(all, "ddprun_node_up"), nullptr);
  EXPECT_EQ(Find(all, "ddprun_node_up")->samples[1].value, 0);
  EXPECT_EQ(Find(all, "ddprun_run_round")->samples[0].value, 3);
  EXPECT_EQ(Find(all, "ddprun_run_restarts_total")->samples[0].value, 1);
  EXPECT_EQ(Find(all, "ddprun_store_operations_total")->samples[0].value, 5);
  EXPECT_EQ(Find(all, "ddprun_run_worker_failures_total")->samples[0].labels[1].second, "7");
}

// A service that lives for years: the newest runs are counted, not the first ones.
TEST(MetricsTest, OfMoreRunsThanAreCountedTheOldestIsForgotten) {
  RunObserver observer(nullptr);
  const auto name = [](std::size_t i) { return "run-" + std::to_string(i); };
  for (std::size_t i = 0; i < kCountedRunsMax; ++i) observer.OnStoreOperations(name(i), 1);
  observer.OnStoreOperations(name(0), 1);
  observer.OnStoreOperations("new", 5);
  const auto counters = observer.Counters();
  EXPECT_EQ(counters.size(), kCountedRunsMax);
  ASSERT_TRUE(counters.contains("new"));
  EXPECT_EQ(counters.at("new").store_operations, 5u);
  EXPECT_EQ(counters.at(name(0)).store_operations, 2u) << "it was heard of a moment ago";
  EXPECT_FALSE(counters.contains(name(1)));
}

}  // namespace
}  // namespace ddprun
