// SPDX-License-Identifier: Apache-2.0
// A rank's place among its collectives, out of records as c10d of torch 2.11 writes them.
#include "worker/library/progress/flight_record.h"

#include <gtest/gtest.h>

namespace ddprun {
namespace {

struct Entry {
  std::string name;
  std::int64_t number = 1;
  bool retired = false;
  std::string state = "scheduled";
  std::string group = "0";
  std::string types = R"(["Float"])";
  std::string sizes = "[[1024,1024]]";
  bool p2p = false;
};

std::string Record(const std::vector<Entry>& entries, std::int64_t first_time = 1000) {
  std::string text = R"({"comm_lib_version":"","entries":[)";
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const Entry& e = entries[i];
    text += std::string(i == 0 ? "" : ",") + R"({"collective_seq_id":)" + std::to_string(e.number) +
            R"(,"input_dtypes":)" + e.types + R"(,"input_sizes":)" + e.sizes + R"(,"is_p2p":)" +
            (e.p2p ? "true" : "false") + R"(,"op_id":1,"output_dtypes":[],"output_sizes":[],)" +
            R"("p2p_seq_id":0,"pg_id":0,"process_group":[")" + e.group +
            R"(","default_pg"],"profiling_name":")" + e.name + R"(","record_id":)" +
            std::to_string(i) + R"(,"retired":)" + (e.retired ? "true" : "false") +
            R"(,"state":")" + e.state + R"(","thread_name":"train","time_created_ns":)" +
            std::to_string(first_time + static_cast<std::int64_t>(i)) + R"(,"timeout_ms":6000})";
  }
  return text + R"(],"pg_config":{},"version":"2.10"})";
}

TEST(FlightRecordTest, TheOldestThatIsNotDoneIsWaitedIn) {
  const CollectivePlace place = PlaceIn({Record({
      {.name = "gloo:broadcast", .number = 55, .retired = true},
      {.name = "gloo:all_reduce", .number = 56, .retired = true},
      {.name = "gloo:all_reduce", .number = 57},
      {.name = "gloo:all_reduce", .number = 58},
  })});
  EXPECT_EQ(place.waits, (Collective{"0", 57, "all_reduce", 4 << 20, "float32"}));
  EXPECT_EQ(place.last, (std::vector<Collective>{{"0", 56, "all_reduce"}}));
}

TEST(FlightRecordTest, ARankThatComputesWaitsInNone) {
  const CollectivePlace place = PlaceIn({Record(
      {{.name = "gloo:barrier", .number = 3, .retired = true, .types = "[]", .sizes = "[]"}})});
  EXPECT_FALSE(place.waits.has_value());
  EXPECT_EQ(place.last, (std::vector<Collective>{{"0", 3, "barrier"}}));
}

TEST(FlightRecordTest, NcclsRetireWhenTheirTimeIsOverAndAreNotDone) {
  EXPECT_EQ(PlaceIn({Record({
                {.name = "nccl:all_reduce", .number = 7, .retired = true, .state = "completed"},
                {.name = "nccl:all_reduce",
                 .number = 8,
                 .retired = true,
                 .state = "started",
                 .types = R"(["BFloat16","BFloat16"])",
                 .sizes = "[[10],[2,3]]"},
            })}),
            (CollectivePlace{Collective{"0", 8, "all_reduce", 32, "bfloat16"},
                             {{"0", 7, "all_reduce"}}}));
}

TEST(FlightRecordTest, GroupsAreApartAndMessagesBetweenTwoHaveNoNumber) {
  const CollectivePlace place = PlaceIn({
      Record({{.name = "nccl:recv", .number = 4, .group = "stage", .p2p = true}}, 2000),
      Record({{.name = "gloo:all_reduce", .number = 9, .retired = true},
              {.name = "gloo:broadcast", .number = 2, .retired = true, .group = "stage"}}),
  });
  EXPECT_EQ(place.waits->name, "recv");
  EXPECT_EQ(place.waits->number, 0);
  EXPECT_EQ(place.waits->group, "stage");
  EXPECT_EQ(place.last,
            (std::vector<Collective>{{"0", 9, "all_reduce"}, {"stage", 2, "broadcast"}}));
}

TEST(FlightRecordTest, WhatCannotBeReadIsAsIfItWereNotThere) {
  EXPECT_EQ(PlaceIn({}), CollectivePlace{});
  for (const char* text : {"", "{", "[]", "{}", R"({"entries":7})", R"({"entries":[{}, 3, null]})",
                           R"({"entries":[{"process_group":[],"is_p2p":1}]})"}) {
    EXPECT_EQ(PlaceIn({text}), CollectivePlace{}) << text;
  }
  const CollectivePlace odd =
      PlaceIn({Record({{.name = "gloo:all_reduce", .types = R"(["ComplexFloat"])"}})});
  EXPECT_EQ(odd.waits, (Collective{"0", 1, "all_reduce", -1, "ComplexFloat"}));
}

TEST(FlightRecordTest, AProcessWithoutAGroupIsNowhere) {
  EXPECT_EQ(PlaceNow(/*with_nccl=*/false, /*queued=*/{}), CollectivePlace{});
}

}  // namespace
}  // namespace ddprun
