// SPDX-License-Identifier: Apache-2.0
// The verbs that do not wait. What is expected was seen in torch's HashStore and TCPStore (2.11).
#include "rendezvous/store/kv_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "tests/unit/rendezvous/kv_store_fixture.h"

namespace ddprun {
namespace {

using V = StoreVerb;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(KvStoreTest, SetGetDelete) {
  TestStore s;
  EXPECT_TRUE(s.Do(V::kSet, {"k"}, {"v"}).status.ok());
  EXPECT_THAT(s.Do(V::kGet, {"k"}).values, ElementsAre("v"));
  s.Do(V::kSet, {"k"}, {std::string("\0x", 2)});
  EXPECT_THAT(s.Do(V::kGet, {"k"}).values, ElementsAre(std::string("\0x", 2)));
  EXPECT_EQ(s.Do(V::kDelete, {"k"}).number, 1);
  EXPECT_EQ(s.Do(V::kDelete, {"k"}).number, 0);
}

TEST(KvStoreTest, CompareSet) {
  TestStore s;
  EXPECT_THAT(s.Do(V::kCompareSet, {"b"}, {"foo", "x"}).values, ElementsAre("foo"));
  EXPECT_EQ(s.Do(V::kCheck, {"b"}).number, 0) << "an absent key with an expectation stays absent";
  EXPECT_THAT(s.Do(V::kCompareSet, {"a"}, {"", "x"}).values, ElementsAre("x"));
  EXPECT_THAT(s.Do(V::kCompareSet, {"a"}, {"zz", "y"}).values, ElementsAre("x"));
  EXPECT_THAT(s.Do(V::kCompareSet, {"a"}, {"", "q"}).values, ElementsAre("x"));
  EXPECT_THAT(s.Do(V::kCompareSet, {"a"}, {"x", "y"}).values, ElementsAre("y"));
  EXPECT_THAT(s.Do(V::kGet, {"a"}).values, ElementsAre("y"));
  s.Do(V::kSet, {"e"}, {""});
  EXPECT_THAT(s.Do(V::kCompareSet, {"e"}, {"", "q"}).values, ElementsAre("q"));
}

TEST(KvStoreTest, AddKeepsDecimalText) {
  TestStore s;
  EXPECT_EQ(s.Add("n", 5).number, 5);
  EXPECT_EQ(s.Add("n", -7).number, -2);
  EXPECT_THAT(s.Do(V::kGet, {"n"}).values, ElementsAre("-2"));
  s.Do(V::kSet, {"n"}, {"12abc"});
  EXPECT_EQ(s.Add("n", 1).number, 13) << "as stoll reads it";
  s.Do(V::kSet, {"n"}, {""});
  EXPECT_EQ(s.Add("n", 1).number, 1);
  s.Do(V::kSet, {"n"}, {" 7"});
  EXPECT_EQ(s.Add("n", 1).number, 8);
}

TEST(KvStoreTest, AddRefusesWhatIsNoNumberOfSixtyFourBits) {
  TestStore s;
  for (const char* value : {"abc", "-", "99999999999999999999"}) {
    s.Do(V::kSet, {"n"}, {value});
    EXPECT_EQ(s.Add("n", 1).status.code(), absl::StatusCode::kInvalidArgument) << value;
    EXPECT_THAT(s.Do(V::kGet, {"n"}).values, ElementsAre(value));
  }
  s.Do(V::kDelete, {"n"});
  s.Add("n", std::numeric_limits<std::int64_t>::max());
  EXPECT_EQ(s.Add("n", 1).status.code(), absl::StatusCode::kInvalidArgument);
}

TEST(KvStoreTest, AppendCheckAndEmptyLists) {
  TestStore s;
  s.Do(V::kAppend, {"ap"}, {"x"});
  s.Do(V::kAppend, {"ap"}, {"yy"});
  EXPECT_THAT(s.Do(V::kGet, {"ap"}).values, ElementsAre("xyy"));
  EXPECT_EQ(s.Do(V::kCheck, {"ap", "no"}).number, 0);
  EXPECT_EQ(s.Do(V::kCheck, {"ap"}).number, 1);
  EXPECT_EQ(s.Do(V::kCheck, {}).number, 1);
  EXPECT_TRUE(s.Do(V::kWait, {}).status.ok());
  EXPECT_THAT(s.Do(V::kMultiGet, {}).values, IsEmpty());
}

TEST(KvStoreTest, ManyAtATime) {
  TestStore s;
  EXPECT_TRUE(s.Do(V::kMultiSet, {"m2", "m1"}, {"2", "1"}).status.ok());
  EXPECT_THAT(s.Do(V::kMultiGet, {"m1", "m2", "m1"}).values, ElementsAre("1", "2", "1"));
  EXPECT_EQ(s.Do(V::kNumKeys, {}).number, 2);
  EXPECT_THAT(s.Do(V::kListKeys, {}).keys, ElementsAre("m1", "m2"));
}

TEST(KvStoreTest, QueuesAndKeysAreTwoNameSpaces) {
  TestStore s;
  EXPECT_EQ(s.Do(V::kQueueLen, {"q"}).number, 0);
  s.Do(V::kQueuePush, {"q"}, {"1"});
  s.Do(V::kQueuePush, {"q"}, {"2"});
  EXPECT_EQ(s.Do(V::kQueueLen, {"q"}).number, 2);
  EXPECT_EQ(s.Do(V::kCheck, {"q"}).number, 1);
  EXPECT_EQ(s.Do(V::kNumKeys, {}).number, 0);
  EXPECT_THAT(s.Do(V::kListKeys, {}).keys, IsEmpty());
  EXPECT_EQ(s.Do(V::kDelete, {"q"}).number, 0);
  EXPECT_THAT(s.Do(V::kQueuePop, {"q"}).values, ElementsAre("1"));
  EXPECT_THAT(s.Do(V::kQueuePop, {"q"}).values, ElementsAre("2"));
  EXPECT_EQ(s.Do(V::kQueuePop, {"q"}).status.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(s.Do(V::kCheck, {"q"}).number, 0);
  s.Do(V::kSet, {"both"}, {"value"});
  s.Do(V::kQueuePush, {"both"}, {"item"});
  EXPECT_THAT(s.Do(V::kGet, {"both"}).values, ElementsAre("value"));
  EXPECT_THAT(s.Do(V::kQueuePop, {"both"}).values, ElementsAre("item"));
}

TEST(KvStoreTest, WrongNumbersOfKeysAndValues) {
  TestStore s;
  const auto code = [&s](StoreVerb verb, std::vector<std::string> keys,
                         std::vector<std::string> values) {
    return s.Do(verb, std::move(keys), std::move(values)).status.code();
  };
  const auto invalid = absl::StatusCode::kInvalidArgument;
  for (const V verb : {V::kSet, V::kGet, V::kAdd, V::kCompareSet, V::kDelete, V::kAppend,
                       V::kQueuePush, V::kQueuePop, V::kQueueLen}) {
    EXPECT_EQ(code(verb, {}, {}), invalid) << static_cast<int>(verb);
    EXPECT_EQ(code(verb, {"a", "b"}, {"v"}), invalid) << static_cast<int>(verb);
  }
  EXPECT_EQ(code(V::kSet, {"k"}, {}), invalid);
  EXPECT_EQ(code(V::kCompareSet, {"k"}, {"one"}), invalid);
  EXPECT_EQ(code(V::kMultiSet, {"a", "b"}, {"1"}), invalid);
  EXPECT_EQ(code(V::kNumKeys, {"k"}, {}), invalid);
  EXPECT_EQ(s.store.key_count(), 0u);
}

TEST(KvStoreTest, AnotherRoundIsAborted) {
  TestStore s;
  StoreOp op = MakeOp(V::kSet, {"k"}, {"v"});
  op.round = RoundId{7};
  const StoreResult result = s.Do(op);
  EXPECT_EQ(result.status.code(), absl::StatusCode::kAborted);
  EXPECT_THAT(std::string(result.status.message()),
              HasSubstr("round 7, but the run is in round 1"));
}

TEST(KvStoreTest, Limits) {
  const auto exhausted = absl::StatusCode::kResourceExhausted;
  TestStore s({.keys_max = 3,
               .bytes_max = 100,
               .value_bytes_max = 40,
               .key_bytes_max = 10,
               .reply_bytes_max = 50});
  EXPECT_EQ(s.Do(V::kSet, {std::string(11, 'k')}, {"v"}).status.code(), exhausted);
  EXPECT_EQ(s.Do(V::kSet, {"k"}, {std::string(41, 'v')}).status.code(), exhausted);
  EXPECT_TRUE(s.Do(V::kSet, {"a"}, {std::string(40, 'v')}).status.ok());
  EXPECT_EQ(s.Do(V::kAppend, {"a"}, {"v"}).status.code(), exhausted);
  EXPECT_TRUE(s.Do(V::kSet, {"b"}, {std::string(40, 'v')}).status.ok());
  EXPECT_EQ(s.Do(V::kMultiGet, {"a", "b"}).status.code(), exhausted) << "one answer";
  EXPECT_EQ(s.Do(V::kSet, {"c"}, {std::string(40, 'v')}).status.code(), exhausted) << "all bytes";
  EXPECT_EQ(s.Do(V::kQueuePush, {"q"}, {std::string(40, 'v')}).status.code(), exhausted);
  EXPECT_TRUE(s.Do(V::kSet, {"b"}, {""}).status.ok()) << "what is replaced is free again";
  EXPECT_TRUE(s.Do(V::kQueuePush, {"q"}, {"1"}).status.ok());
  EXPECT_EQ(s.Do(V::kSet, {"c"}, {""}).status.code(), exhausted)
      << "keys and queued values together";
  EXPECT_EQ(s.Do(V::kMultiSet, {"a", "c"}, {"new", "new"}).status.code(), exhausted);
  EXPECT_THAT(s.Do(V::kGet, {"a"}).values, ElementsAre(std::string(40, 'v'))) << "all or nothing";
  EXPECT_TRUE(s.Do(V::kQueuePop, {"q"}).status.ok());
  EXPECT_TRUE(s.Do(V::kSet, {"c"}, {""}).status.ok());
}

// A store of 100 bytes, and keys of one byte.
KvStore::Limits HundredBytes() { return {.bytes_max = 100, .value_bytes_max = 100}; }

// Whether `bytes` more fit, which leaves the store as it was.
bool HasRoomFor(TestStore& s, std::size_t bytes) {
  const std::string key = "?";
  const bool fits = s.Do(V::kSet, {key}, {std::string(bytes - key.size(), 'v')}).status.ok();
  EXPECT_EQ(s.Do(V::kDelete, {key}).number, fits ? 1 : 0);
  return fits;
}

// Checks that exactly `bytes` more fit.
void ExpectRoom(TestStore& s, std::size_t bytes) {
  EXPECT_TRUE(HasRoomFor(s, bytes));
  EXPECT_FALSE(HasRoomFor(s, bytes + 1));
}

TEST(KvStoreTest, DeletedKeysFreeTheirBytes) {
  TestStore s(HundredBytes());
  for (int i = 0; i < 50; ++i) {
    ASSERT_TRUE(s.Do(V::kSet, {"k"}, {std::string(60, 'v')}).status.ok()) << i;
    EXPECT_EQ(s.Do(V::kDelete, {"k"}).number, 1);
  }
  ExpectRoom(s, 100);
}

TEST(KvStoreTest, PoppedValuesFreeTheirBytesAndTheLastOneItsQueueName) {
  TestStore s(HundredBytes());
  for (int i = 0; i < 50; ++i) {
    ASSERT_TRUE(s.Do(V::kQueuePush, {"q"}, {std::string(30, 'a')}).status.ok()) << i;
    ASSERT_TRUE(s.Do(V::kQueuePush, {"q"}, {std::string(40, 'b')}).status.ok()) << i;
    EXPECT_TRUE(s.Do(V::kQueuePop, {"q"}).status.ok());
    ExpectRoom(s, 100 - 1 - 40);
    EXPECT_TRUE(s.Do(V::kQueuePop, {"q"}).status.ok());
  }
  ExpectRoom(s, 100);
}

TEST(KvStoreTest, AValueThatAWaitingPopTakesOccupiesNoBytes) {
  TestStore s(HundredBytes());
  for (int i = 0; i < 50; ++i) {
    const StoreTicket pop = s.Wait(V::kQueuePop, {"q"});
    ASSERT_TRUE(s.Do(V::kQueuePush, {"q"}, {std::string(60, 'v')}).status.ok()) << i;
    EXPECT_TRUE(s.IsAnswered(pop));
  }
  ExpectRoom(s, 100);
}

TEST(KvStoreTest, ANewRoundHasAllBytesAndEntries) {
  KvStore::Limits limits = HundredBytes();
  limits.keys_max = 2;
  TestStore s(limits);
  EXPECT_TRUE(s.Do(V::kSet, {"k"}, {std::string(40, 'v')}).status.ok());
  EXPECT_TRUE(s.Do(V::kQueuePush, {"q"}, {std::string(40, 'v')}).status.ok());
  s.Clear(RoundId{2});
  s.Clear(kRound);
  ExpectRoom(s, 100);
  EXPECT_TRUE(s.Do(V::kMultiSet, {"a", "b"}, {"", ""}).status.ok());
}

TEST(KvStoreTest, ReplacedValuesFreeTheirBytes) {
  TestStore s(HundredBytes());
  ASSERT_TRUE(s.Do(V::kSet, {"k"}, {std::string(60, 'v')}).status.ok());
  for (int i = 0; i < 50; ++i) {
    ASSERT_TRUE(s.Do(V::kSet, {"k"}, {std::string(60, 'v')}).status.ok()) << i;
    ASSERT_TRUE(s.Do(V::kMultiSet, {"k"}, {std::string(60, 'w')}).status.ok()) << i;
    ASSERT_TRUE(s.Do(V::kCompareSet, {"k"}, {std::string(60, 'w'), "7"}).status.ok()) << i;
    ASSERT_TRUE(s.Add("k", 5).status.ok()) << i;
    ASSERT_TRUE(s.Do(V::kAppend, {"k"}, {std::string(50, 'x')}).status.ok()) << i;
  }
  ExpectRoom(s, 100 - 1 - 52);
}

TEST(KvStoreTest, AKeyNamedSeveralTimesInOneMultiSetFreesItsValueOnce) {
  TestStore s(HundredBytes());
  const std::string old(30, 'v');
  ASSERT_TRUE(s.Do(V::kMultiSet, {"k", "o"}, {old, std::string(50, 'v')}).status.ok());
  EXPECT_FALSE(s.Do(V::kMultiSet, {"k", "k", "n"}, {"", old, std::string(20, 'v')}).status.ok());
  ExpectRoom(s, 100 - 31 - 51);
  EXPECT_TRUE(s.Do(V::kMultiSet, {"k", "k", "k", "k"}, {"", "", "", "last"}).status.ok());
  EXPECT_THAT(s.Do(V::kGet, {"k"}).values, ElementsAre("last"));
  ExpectRoom(s, 100 - 5 - 51);
}

TEST(KvStoreTest, ARefusedOperationOccupiesNoBytes) {
  TestStore s(HundredBytes());
  ASSERT_TRUE(s.Do(V::kSet, {"k"}, {std::string(60, 'v')}).status.ok());
  const std::string large(50, 'w');
  for (const V verb : {V::kSet, V::kAppend, V::kQueuePush, V::kMultiSet})
    EXPECT_FALSE(s.Do(verb, {"n"}, {large}).status.ok()) << static_cast<int>(verb);
  EXPECT_FALSE(s.Do(V::kAppend, {"k"}, {large}).status.ok());
  ExpectRoom(s, 100 - 1 - 60);
}

TEST(KvStoreTest, AListThatIsTooLongIsRefused) {
  TestStore s({.reply_bytes_max = 20});
  for (const char* key : {"one", "two", "three"}) s.Do(V::kSet, {key}, {""});
  EXPECT_EQ(s.Do(V::kListKeys, {}).status.code(), absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace ddprun
