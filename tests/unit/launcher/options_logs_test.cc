// SPDX-License-Identifier: Apache-2.0
#include "launcher/options/run_flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "launcher/command_line/parse_options.h"
#include "launcher/options/options.h"

namespace ddprun {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Variables = std::map<std::string, std::string>;

absl::StatusOr<LogOptions> Parse(std::vector<std::string> flags, const Variables& variables = {}) {
  flags.push_back("true");
  auto parsed = ParseOptions(flags, [&](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  });
  if (!parsed.ok()) return parsed.status();
  return std::get<Options>(*parsed).logs;
}

std::string Error(std::vector<std::string> flags, const Variables& variables = {}) {
  return std::string(Parse(std::move(flags), variables).status().message());
}

TEST(LogOptionsTest, Defaults) {
  const LogOptions options = *Parse({});
  EXPECT_TRUE(options.redirects.IsEmpty());
  EXPECT_TRUE(options.tee.IsEmpty());
  EXPECT_TRUE(options.local_ranks.empty());
  EXPECT_EQ(options.line_prefix, std::nullopt);
  EXPECT_EQ(options.rotation, LogRotation{});
  EXPECT_EQ(options.fold, LogFold::kAuto);
}

TEST(LogOptionsTest, ShortFormsAsTorchrunHasThem) {
  const LogOptions options = *Parse({"-r", "1", "-t", "12:3"});
  EXPECT_TRUE(options.redirects.Has(7, OutputStream::kOut));
  EXPECT_TRUE(options.tee.Has(12, OutputStream::kErr));
  EXPECT_FALSE(options.tee.Has(1, OutputStream::kErr));
  EXPECT_TRUE(Parse({"-t3"})->tee.Has(0, OutputStream::kErr));
  EXPECT_TRUE(Parse({"-t=3"})->tee.Has(0, OutputStream::kErr));
}

TEST(LogOptionsTest, AllOthers) {
  const LogOptions options =
      *Parse({"--local_ranks_filter=0,11", "--duplicate-stdout-filters", "a,,b,c",
              "--duplicate_stderr_filters=x", "--log-rotate", "10M:4", "--log-fold=never"});
  EXPECT_THAT(options.local_ranks, ElementsAre(0, 11));
  EXPECT_THAT(options.out_filters, ElementsAre("a,b", "c"));
  EXPECT_THAT(options.err_filters, ElementsAre("x"));
  EXPECT_EQ(options.rotation, (LogRotation{.bytes = 10u << 20, .files = 4}));
  EXPECT_EQ(options.fold, LogFold::kNever);
  EXPECT_EQ(Parse({"--log-fold", "always"})->fold, LogFold::kAlways);
}

TEST(LogOptionsTest, VariablesOfAllOfThem) {
  const LogOptions options = *Parse({}, {{"PET_REDIRECTS", "2"},
                                         {"PET_TEE", "1:1"},
                                         {"PET_LOCAL_RANKS_FILTER", "3"},
                                         {"PET_DUPLICATE_STDOUT_FILTERS", "a"},
                                         {"PET_LOG_ROTATE", "1G"},
                                         {"PET_LOG_FOLD", "always"}});
  EXPECT_TRUE(options.redirects.Has(0, OutputStream::kErr));
  EXPECT_TRUE(options.tee.Has(1, OutputStream::kOut));
  EXPECT_THAT(options.local_ranks, ElementsAre(3));
  EXPECT_THAT(options.out_filters, ElementsAre("a"));
  EXPECT_EQ(options.rotation.bytes, 1u << 30);
  EXPECT_EQ(options.fold, LogFold::kAlways);
}

TEST(LogOptionsTest, ThePrefixOfTheFlagComesBeforeThatOfTheVariables) {
  const std::string flag = "--log-line-prefix-template";
  const std::string ours = "PET_LOG_LINE_PREFIX_TEMPLATE";
  const std::string theirs = "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE";
  EXPECT_EQ(Parse({flag, "a"}, {{ours, "b"}, {theirs, "c"}})->line_prefix, "a");
  EXPECT_EQ(Parse({}, {{ours, "b"}, {theirs, "c"}})->line_prefix, "b");
  EXPECT_EQ(Parse({}, {{theirs, "c"}})->line_prefix, "c");
  EXPECT_EQ(Parse({flag, ""}, {{theirs, "c"}})->line_prefix, "");
  EXPECT_THAT(Error({}, {{theirs, "${x}"}}), HasSubstr(theirs + " '${x}' has ${x}"));
}

TEST(LogOptionsTest, WhatAPersonGetsWrong) {
  EXPECT_THAT(Error({"-r", "4"}), HasSubstr("--redirects '4' is not 0, 1, 2 or 3"));
  EXPECT_THAT(Error({}, {{"PET_TEE", "0:9"}}), HasSubstr("PET_TEE '0:9' is not"));
  EXPECT_THAT(Error({"--local-ranks-filter", "a"}), HasSubstr("'a' is not a list of local ranks"));
  EXPECT_THAT(Error({"--duplicate-stderr-filters", "a,"}), HasSubstr("one of them is empty"));
  EXPECT_THAT(Error({"--log-line-prefix-template", "a\nb"}), HasSubstr("has a line end"));
  EXPECT_THAT(Error({"--log-line-prefix-template", std::string(300, 'x')}),
              HasSubstr("longer than 256"));
  EXPECT_THAT(Error({"--log-rotate", "5"}), HasSubstr("--log-rotate '5' is not SIZE"));
  EXPECT_THAT(Error({"--log-fold", "maybe"}), HasSubstr("auto, always or never"));
  EXPECT_THAT(Error({"--log-time", "train.py"}),
              HasSubstr("--log-time 'train.py' is not off, local, utc or relative"));
}

}  // namespace
}  // namespace ddprun
