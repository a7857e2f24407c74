// SPDX-License-Identifier: Apache-2.0
#include "worker/train/profile/trace.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace ddprun {
namespace {

using nlohmann::json;

TEST(Trace, IsTheListThatPerfettoOpens) {
  RankTrace trace{.rank = 3, .host = "node \"7\"", .tracks = {{0, "steps"}, {1, "operators"}}};
  trace.slices.push_back({.name = "forward", .start = 1234567, .duration = 89, .track = 0});
  trace.slices.push_back(
      {.name = "gloo:all_reduce", .start = 2000, .duration = 5000, .track = 1, .overlaps = true});
  const json file =
      json::parse(TraceFile({TraceEvents(trace), "", TraceEvents({.rank = 4, .host = "b"})}));
  const json& events = file.at("traceEvents");
  ASSERT_EQ(events.size(), 2 + 4 + 1 + 2 + 2);
  EXPECT_EQ(events[0].at("args").at("name"), "rank 3 (node \"7\")");
  EXPECT_EQ(events[0].at("name"), "process_name");
  EXPECT_EQ(events[0].at("pid"), 3);
  EXPECT_EQ(events[4].at("args").at("name"), "operators");
  EXPECT_EQ(
      events[6],
      json::parse(R"({"ph":"X","pid":3,"tid":0,"name":"forward","ts":1234.567,"dur":0.089})"));
  EXPECT_EQ(events[7].at("ph"), "b");
  EXPECT_EQ(events[8].at("ph"), "e");
  EXPECT_EQ(events[8].at("ts"), 7.0);
  EXPECT_EQ(events[7].at("id2"), events[8].at("id2"));
  EXPECT_EQ(events[9].at("args").at("name"), "rank 4 (b)");
}

TEST(Trace, NamesThatAreNoTextSpoilNothing) {
  RankTrace trace{.rank = 0, .host = "a"};
  trace.slices.push_back({.name = "bad \xff name\n", .start = 0, .duration = 1});
  EXPECT_NO_THROW(json::parse(TraceFile({TraceEvents(trace)})));
}

TEST(Trace, SlicesOfATrackNestOrAreMarked) {
  std::vector<TraceSlice> slices;
  const auto add = [&](const char* name, std::int64_t start, std::int64_t end, int track) {
    slices.push_back({.name = name, .start = start, .duration = end - start, .track = track});
  };
  add("crosses", 5, 15, 0);
  add("inner", 2, 8, 0);
  add("outer", 0, 10, 0);
  add("as long", 0, 10, 0);
  add("next", 10, 20, 0);
  add("elsewhere", 5, 15, 1);
  MarkOverlaps(slices);
  std::vector<std::string> marked;
  for (const auto& slice : slices) {
    if (slice.overlaps) marked.push_back(slice.name);
  }
  EXPECT_EQ(marked, std::vector<std::string>{"crosses"});
  EXPECT_EQ(slices.front().name, "outer");
}

TEST(Trace, WithoutRanksItIsEmpty) {
  EXPECT_TRUE(json::parse(TraceFile({})).at("traceEvents").empty());
}

}  // namespace
}  // namespace ddprun
