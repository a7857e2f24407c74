// SPDX-License-Identifier: Apache-2.0
// Dumps of PyTorch's flight recorder: those that PyTorch 2.11 and 2.15 have written
// (flight_dumps/), and ones as those of NCCL's backends would be by PyTorch's source.
#include "launcher/collectives/flight_dump.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <limits>

#include "absl/strings/str_replace.h"
#include "rendezvous/values/collectives.h"
#include "tests/testing/paths.h"

namespace ddprun {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

std::string Recorded(int rank, const std::string& folder = "") {
  std::ifstream in(SourcePath("tests/unit/launcher/flight_dumps/" + folder + "rank" +
                              std::to_string(rank) + ".pickle"),
                   std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::string Sentence(const std::vector<std::string>& dumps) {
  std::vector<RanksInPlace> places;
  int rank = 0;
  for (const std::string& dump : dumps) {
    const auto place = ParseFlightDump(dump, 0);
    EXPECT_TRUE(place.ok()) << place.status();
    if (place.ok()) AddPlace(rank++, *place, places);
  }
  return ToSentence(places);
}

// ---- Pickles in the instructions that PyTorch's pickler uses

std::string Bytes(std::uint64_t number, int count) {
  std::string bytes;
  for (int i = 0; i < count; ++i) bytes += static_cast<char>(number >> (8 * i));
  return bytes;
}
std::string Int(std::int64_t number) {
  return "\x8a\x08" + Bytes(static_cast<std::uint64_t>(number), 8);
}
std::string Text(const std::string& text) { return "X" + Bytes(text.size(), 4) + text; }
std::string Bool(bool value) { return value ? "\x88" : "\x89"; }
std::string List(const std::vector<std::string>& items) {
  std::string list = "](";
  for (const std::string& item : items) list += item;
  return list + "e";
}
std::string Dict(const std::vector<std::pair<std::string, std::string>>& items) {
  std::string dict = "}(";
  for (const auto& [key, value] : items) dict += Text(key) + value;
  return dict + "u";
}

struct Call {
  std::int64_t number = 1;
  std::string state = "completed";
  std::string name = "nccl:all_reduce";
  std::string group = "0";
  bool retired = false;
  bool between_two = false;
  std::vector<std::int64_t> shape = {256};
  std::string type = "Float";
  std::int64_t created = 0;  // 0: the number
};

std::string EntryOf(const Call& call) {
  std::vector<std::string> shape;
  for (const std::int64_t length : call.shape) shape.push_back(Int(length));
  return Dict({{"frames", List({Dict({{"name", Text("f")}, {"line", "K\x07"}})})},
               {"process_group", Text(call.group) + Text("default_pg") + "\x86"},
               {"collective_seq_id", Int(call.number)},
               {"profiling_name", Text(call.name)},
               {"time_created_ns", Int(call.created != 0 ? call.created : call.number)},
               {"duration_ms", "G" + std::string(8, '\0')},
               {"input_sizes", List({List(shape)})},
               {"input_dtypes", List({Text(call.type)})},
               {"state", Text(call.state)},
               {"time_discovered_started_ns", "N"},
               {"retired", Bool(call.retired)},
               {"is_p2p", Bool(call.between_two)}});
}

std::string DumpOf(const std::vector<Call>& calls, const std::vector<std::string>& groups = {"0"}) {
  std::vector<std::string> entries;
  for (const Call& call : calls) entries.push_back(EntryOf(call));
  std::vector<std::pair<std::string, std::string>> config;
  for (const std::string& group : groups) config.emplace_back(group, Dict({}));
  return "\x80\x02" +
         Dict(
             {{"version", Text("2.10")}, {"pg_config", Dict(config)}, {"entries", List(entries)}}) +
         "q\x01.";
}

CollectivePlace PlaceOf(const std::string& dump, std::int64_t since_ns = 0) {
  const auto place = ParseFlightDump(dump, since_ns);
  EXPECT_TRUE(place.ok()) << place.status();
  return place.value_or(CollectivePlace{});
}

std::string ErrorOf(const std::string& dump) {
  const auto place = ParseFlightDump(dump, 0);
  EXPECT_FALSE(place.ok());
  EXPECT_EQ(place.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(place.status().message());
}

// ---- Recorded

TEST(FlightDump, RecordedOnesNameTheRankThatIsMissing) {
  EXPECT_EQ(Sentence({Recorded(0), Recorded(1), Recorded(2)}),
            "ranks 0-1 wait in all_reduce 4 (1 KiB float32); rank 2 has not begun it: its last was "
            "all_reduce 3");
}

// Gloo's own, and those of c10d's hook, which records nccl2 (here: a backend of that name).
TEST(FlightDump, ThoseOfPyTorch215NameTheRankThatIsMissing) {
  for (const std::string folder : {"gloo-2.15/", "stand-in-2.15/"}) {
    EXPECT_EQ(Sentence({Recorded(0, folder), Recorded(1, folder), Recorded(2, folder)}),
              "ranks 0-1 wait in all_reduce 4 (1 KiB float32); rank 2 has not begun it: its last "
              "was all_reduce 3")
        << folder;
  }
}

TEST(FlightDump, ARecordedOneIsReadInFull) {
  const CollectivePlace place = PlaceOf(Recorded(0));
  ASSERT_TRUE(place.waits.has_value());
  EXPECT_EQ(*place.waits, (Collective{"0", 4, "all_reduce", 1024, "float32"}));
  ASSERT_EQ(place.last.size(), 4u);
  EXPECT_EQ(place.last[2], (Collective{"0", 3, "all_reduce", 12, "float32"}));
  EXPECT_EQ(place.last[3], (Collective{"1", 1, "broadcast", 80, "int64"}));
}

TEST(FlightDump, ARecordedOneThatIsCutIsDamaged) {
  const std::string dump = Recorded(0);
  for (std::size_t size = 0; size < dump.size(); ++size)
    EXPECT_FALSE(ParseFlightDump(dump.substr(0, size), 0).ok()) << size;
}

// ---- NCCL's

TEST(FlightDump, WhatIsScheduledOrStartedIsWaitedFor) {
  for (const char* state : {"scheduled", "started"}) {
    const CollectivePlace place = PlaceOf(DumpOf({{1}, {2, state}, {3, state}}));
    ASSERT_TRUE(place.waits.has_value());
    EXPECT_EQ(place.waits->number, 2);
    ASSERT_EQ(place.last.size(), 1u);
    EXPECT_EQ(place.last[0].number, 1);
  }
}

TEST(FlightDump, WhatTimedOutIsRetiredAndNotDone) {
  const CollectivePlace place =
      PlaceOf(DumpOf({{1}, {.number = 2, .state = "started", .retired = true}}));
  ASSERT_TRUE(place.waits.has_value());
  EXPECT_EQ(place.waits->number, 2);
}

// nccl2's end of a collective is "completed"; one that timed out is neither that nor retired.
TEST(FlightDump, Nccl2SaysWhatIsOverAndLeavesTheRestScheduled) {
  for (const char* name : {"nccl2:all_reduce", "nccl-lazy:all_reduce"}) {
    const CollectivePlace place = PlaceOf(DumpOf(
        {{.name = name, .retired = true}, {.number = 2, .state = "scheduled", .name = name}}));
    ASSERT_TRUE(place.waits.has_value()) << name;
    EXPECT_EQ(*place.waits, (Collective{"0", 2, "all_reduce", 1024, "float32"}));
    EXPECT_THAT(place.last,
                testing::ElementsAre(Collective{"0", 1, "all_reduce", 1024, "float32"}));
  }
}

TEST(FlightDump, TheOldestOneIsWaitedForWhateverItsPlaceInTheRing) {
  const CollectivePlace place =
      PlaceOf(DumpOf({{.number = 9, .state = "started", .created = 50},
                      {.number = 3, .state = "started", .group = "1", .created = 40}}));
  EXPECT_EQ(place.waits->group, "1");
}

TEST(FlightDump, OtherRanksCallsAreCompared) {
  const std::string most = DumpOf({{1}, {2, "started"}});
  EXPECT_EQ(
      Sentence({most, most, DumpOf({{1}, {.number = 2, .state = "started", .shape = {512}}})}),
      "rank 2 has called all_reduce 2 (2 KiB float32) where ranks 0-1 have called all_reduce "
      "2 (1 KiB float32)");
}

TEST(FlightDump, MessagesBetweenTwoRanksHaveNoNumber) {
  const CollectivePlace place = PlaceOf(
      DumpOf({{.number = 4, .name = "nccl:send 0->1", .between_two = true},
              {.number = 5, .state = "started", .name = "nccl:recv 0<-1", .between_two = true}}));
  EXPECT_EQ(place.waits->number, 0);
  EXPECT_EQ(place.waits->name, "recv_0<-1");
  EXPECT_THAT(place.last, testing::ElementsAre(Collective{.group = "0"}));
}

TEST(FlightDump, AGroupWithoutAnEntryIsOneThatTheRankIsIn) {
  const CollectivePlace place = PlaceOf(DumpOf({{1}}, {"0", "3"}));
  EXPECT_THAT(place.last, testing::ElementsAre(Collective{"0", 1, "all_reduce", 1024, "float32"},
                                               Collective{.group = "3"}));
}

TEST(FlightDump, OfEachGroupTheLastOnesAreKept) {
  std::vector<Call> calls;
  for (std::int64_t i = 1; i <= 2000; ++i) calls.push_back({i});
  const CollectivePlace place = PlaceOf(DumpOf(calls));
  ASSERT_EQ(place.last.size(), 6u);
  EXPECT_EQ(place.last.back().number, 2000);
}

TEST(FlightDump, EntriesOfAnEarlierRoundAreLeftOut) {
  const std::string dump =
      DumpOf({{.number = 7, .state = "started", .created = 100}, {.number = 1, .created = 200}});
  EXPECT_EQ(PlaceOf(dump, 100).waits->number, 7);
  EXPECT_EQ(PlaceOf(dump, 101).waits, std::nullopt);
  EXPECT_EQ(PlaceOf(dump, 101).last.size(), 1u);
}

TEST(FlightDump, SizesThatOverflowAreNotSaid) {
  const std::int64_t most = std::numeric_limits<std::int64_t>::max();
  for (const auto& shape : {std::vector<std::int64_t>{most, most}, {most}, {-1}}) {
    EXPECT_EQ(PlaceOf(DumpOf({{.state = "started", .shape = shape}})).waits->bytes, -1);
  }
  const CollectivePlace other = PlaceOf(DumpOf({{.state = "started", .type = "Float8_e4m3fn"}}));
  EXPECT_EQ(other.waits->bytes, -1);
  EXPECT_EQ(other.waits->dtype, "Float8_e4m3fn");
}

TEST(FlightDump, LongNamesAreCutAndStayOneWord) {
  const CollectivePlace place = PlaceOf(DumpOf(
      {{.state = "started", .name = "nccl:a b\n" + std::string(500, 'x'), .group = "my group"}}));
  EXPECT_THAT(place.waits->name, StartsWith("a_b_xxx"));
  EXPECT_EQ(place.waits->name.size(), kCollectiveNameBytesMax);
  EXPECT_EQ(place.waits->group, "my_group");
}

TEST(FlightDump, ControlCharactersInNamesAreReplaced) {
  const CollectivePlace place = PlaceOf(DumpOf({{.state = "started",
                                                 .name = "nccl:\x1b[2Jall_reduce",
                                                 .group = "\x07",
                                                 .type = "\x1b]0;t"}}));
  EXPECT_EQ(*place.waits, (Collective{"?", 1, "all_reduce", -1, "?]0;t"}));
}

// ---- Small pickles that are large when each reference to a value is followed

std::string Keep(char key, const std::string& value) { return value + "q" + key; }
std::string Again(char key) { return std::string("h") + key; }
std::string Repeated(const std::string& text, int count) {
  std::string all;
  for (int i = 0; i < count; ++i) all += text;
  return all;
}

std::string DumpWith(const std::vector<std::string>& shared, const std::string& entries) {
  return "\x80\x02" + Dict({{"shared", List(shared)}, {"entries", List({entries})}}) + ".";
}

// The entry of a collective, with `other` in each place of `part`.
std::string EntryWith(int number, const std::string& part, const std::string& other) {
  return absl::StrReplaceAll(EntryOf({number}), {{part, other}});
}

// Each of these would take many minutes otherwise.
TEST(FlightDump, AnEntryThatIsListedOftenIsReadOnce) {
  std::string entry = EntryOf({1});
  entry.insert(2, Repeated(Again(1) + Again(1), 200'000));
  const CollectivePlace place =
      PlaceOf(DumpWith({Keep(1, Text("other"))}, Keep(2, entry) + Repeated(Again(2), 500'000)));
  EXPECT_THAT(place.last, testing::ElementsAre(Collective{"0", 1, "all_reduce", 1024, "float32"}));
}

TEST(FlightDump, ListsThatEntriesShareAreCountedOnce) {
  const std::string lengths = "](" + Repeated(Again(1), 300'000) + "e";
  const std::string sizes = "](" + Repeated(Again(2), 300'000) + "e";
  std::string entries;
  for (int i = 1; i <= 1000; ++i) entries += EntryWith(i, List({List({Int(256)})}), Again(3));
  const CollectivePlace place =
      PlaceOf(DumpWith({Keep(1, Int(1)), Keep(2, lengths), Keep(3, sizes)}, entries));
  ASSERT_EQ(place.last.size(), 6u);
  EXPECT_EQ(place.last.back(), (Collective{"0", 1000, "all_reduce", 1'200'000, "float32"}));
}

TEST(FlightDump, ALongNameThatEntriesShareIsCutBeforeItIsCopied) {
  const std::string name = Keep(1, Text("nccl:" + std::string(32u << 20, 'x')));
  for (const std::string& part : {Text("0"), Text("nccl:all_reduce"), Text("Float")}) {
    std::string entries;
    for (int i = 1; i <= 20'000; ++i) entries += EntryWith(i, part, Again(1));
    const CollectivePlace place = PlaceOf(DumpWith({name}, entries));
    ASSERT_EQ(place.last.size(), 6u);
    EXPECT_EQ(place.last.back().number, 20'000);
  }
}

// ---- Others than dumps

TEST(FlightDump, AnotherShapeIsAnErrorThatNamesTheField) {
  EXPECT_EQ(ErrorOf("\x80\x02]."), "the dump is no dict");
  EXPECT_THAT(ErrorOf("\x80\x02}."), HasSubstr("\"entries\""));
  EXPECT_THAT(ErrorOf("\x80\x02" + Dict({{"entries", "N"}}) + "."), HasSubstr("\"entries\""));
  EXPECT_THAT(ErrorOf("\x80\x02" + Dict({{"entries", List({"N"})}}) + "."), HasSubstr("entries"));
  const std::string whole = DumpOf({{1}});
  for (const std::string field : {"process_group", "collective_seq_id", "profiling_name",
                                  "time_created_ns", "state", "retired", "is_p2p"}) {
    std::string other = whole;
    other[other.find(Text(field)) + 5] = '_';
    EXPECT_THAT(ErrorOf(other), HasSubstr(field));
  }
}

TEST(FlightDump, NothingIsCalledAndACallIsNoValue) {
  const std::string call = "cos\nsystem\n" + Text("true") + "\x85R";
  EXPECT_THAT(ErrorOf("\x80\x02" + Dict({{"entries", call}}) + "."), HasSubstr("\"entries\""));
  EXPECT_THAT(ErrorOf("\x80\x02" + Dict({{"entries", "\x93"}}) + "."), HasSubstr("fit together"));
  EXPECT_THAT(ErrorOf("\x80\x02\x92."), HasSubstr("instruction 146"));
}

TEST(FlightDump, AListInItselfEnds) {
  EXPECT_THAT(ErrorOf("\x80\x02}(" + Text("entries") + "]q\x05h\x05" + "au."),
              HasSubstr("entries"));
}

}  // namespace
}  // namespace ddprun
