// SPDX-License-Identifier: Apache-2.0
#include "launcher/options/log_specs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"

namespace ddprun {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// "o", "e", "oe" or "" of each of the first `count` local ranks.
std::vector<std::string> Streams(std::string_view text, int count) {
  std::vector<std::string> streams;
  const std::optional<StreamSpec> spec = ParseStreamSpec(text);
  if (!spec.has_value()) return {"not a spec"};
  for (int i = 0; i < count; ++i) {
    streams.push_back(absl::StrCat(spec->Has(i, OutputStream::kOut) ? "o" : "",
                                   spec->Has(i, OutputStream::kErr) ? "e" : ""));
  }
  return streams;
}

TEST(StreamSpecTest, OneNumberIsForAll) {
  EXPECT_THAT(Streams("0", 2), ElementsAre("", ""));
  EXPECT_THAT(Streams("1", 2), ElementsAre("o", "o"));
  EXPECT_THAT(Streams("2", 2), ElementsAre("e", "e"));
  EXPECT_THAT(Streams("3", 2), ElementsAre("oe", "oe"));
}

TEST(StreamSpecTest, AMappingLeavesTheOthersAlone) {
  EXPECT_THAT(Streams("0:3,2:1", 4), ElementsAre("oe", "", "o", ""));
}

TEST(StreamSpecTest, LocalRanksOfTenAndMoreAreRanksToo) {
  EXPECT_THAT(Streams("11:2,10:1", 12).back(), "e");
  EXPECT_THAT(Streams("11:2,10:1", 11).back(), "o");
  EXPECT_THAT(Streams("1:3", 12).back(), "");
}

TEST(StreamSpecTest, WhatItIsNot) {
  for (const char* text : {"", "4", "-1", "12", "a", "0:4", "0:", ":1", "0:1,", "0:1,,1:1", "0:1:2",
                           "-1:1", "0:1,0:2", "0;1"}) {
    EXPECT_FALSE(ParseStreamSpec(text).has_value()) << text;
  }
}

TEST(StreamSpecTest, EmptyMeansNoStreamOfAnyone) {
  EXPECT_TRUE(StreamSpec().IsEmpty());
  EXPECT_TRUE(ParseStreamSpec("0:0,3:0")->IsEmpty());
  EXPECT_FALSE(ParseStreamSpec("0:0,3:2")->IsEmpty());
}

TEST(LocalRanksTest, AList) {
  EXPECT_THAT(*ParseLocalRanks("2,0, 11"), ElementsAre(0, 2, 11));
  EXPECT_TRUE(ParseLocalRanks("")->empty());
  for (const char* text : {"a", "1,", "-1", "1 2"}) EXPECT_FALSE(ParseLocalRanks(text)) << text;
}

TEST(FiltersTest, ACommaIsWrittenTwice) {
  EXPECT_THAT(ParseFilters(""), ElementsAre());
  EXPECT_THAT(ParseFilters("apple"), ElementsAre("apple"));
  EXPECT_THAT(ParseFilters("apple,orange"), ElementsAre("apple", "orange"));
  EXPECT_THAT(ParseFilters("a,,b,c"), ElementsAre("a,b", "c"));
  EXPECT_THAT(ParseFilters(",,,x"), ElementsAre(",", "x"));
  EXPECT_THAT(ParseFilters("a,"), ElementsAre("a", ""));
}

TEST(LogRotationTest, Sizes) {
  EXPECT_EQ(ParseLogRotation("4096"), (LogRotation{.bytes = 4096}));
  EXPECT_EQ(ParseLogRotation("10K"), (LogRotation{.bytes = 10240}));
  EXPECT_EQ(ParseLogRotation("2m:5"), (LogRotation{.bytes = 2u << 20, .files = 5}));
  EXPECT_EQ(ParseLogRotation("1G:1"), (LogRotation{.bytes = 1u << 30, .files = 1}));
  for (const char* text : {"", "K", "0", "1023", "10X", "1K:", "1K:0", "1K:a", "1K:1:1", "-1K",
                           "9999999999G", "18446744073709551616"}) {
    EXPECT_FALSE(ParseLogRotation(text).has_value()) << text;
  }
}

const PrefixValues kValues{.role_name = "trainer", .local_rank = 1, .rank = 9, .hostname = "a"};

TEST(PrefixTest, NamesAreFilledIn) {
  EXPECT_EQ(*FillPrefix("[${role_name}${local_rank}]:", kValues), "[trainer1]:");
  EXPECT_EQ(*FillPrefix("$hostname:$rank $$1 ", kValues), "a:9 $1 ");
  EXPECT_EQ(*FillPrefix("plain", kValues), "plain");
  EXPECT_EQ(*FillPrefix("", kValues), "");
}

TEST(PrefixTest, NothingElseIs) {
  const absl::Status unknown = FillPrefix("${world_size}", kValues).status();
  EXPECT_THAT(std::string(unknown.message()), HasSubstr("${world_size}"));
  EXPECT_THAT(std::string(unknown.message()), HasSubstr("${hostname}"));
  for (const char* text : {"$", "$ ", "${rank", "${}", "${rank }", "$(date)", "${rank!r}"})
    EXPECT_TRUE(absl::IsInvalidArgument(FillPrefix(text, kValues).status())) << text;
}

TEST(PrefixTest, ValuesAreNotLookedAtAgain) {
  EXPECT_EQ(*FillPrefix("${role_name}", {.role_name = "${rank}$"}), "${rank}$");
}

}  // namespace
}  // namespace ddprun
