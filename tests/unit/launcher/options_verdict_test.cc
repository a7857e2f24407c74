// SPDX-License-Identifier: Apache-2.0
#include "launcher/options/run_flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launcher/command_line/parse_options.h"
#include "launcher/options/options.h"

namespace ddprun {
namespace {

absl::StatusOr<VerdictOptions> Parse(std::vector<std::string> arguments) {
  arguments.push_back("true");
  auto parsed = ParseOptions(arguments, [](const std::string&) { return std::nullopt; });
  if (!parsed.ok()) return parsed.status();
  return std::get<Options>(*parsed).verdict;
}

TEST(OptionsVerdictTest, Values) {
  EXPECT_EQ(Parse({})->form, VerdictForm::kText);
  EXPECT_EQ(Parse({})->file, "");
  EXPECT_EQ(Parse({"--verdict", "json"})->form, VerdictForm::kJson);
  EXPECT_EQ(Parse({"--verdict=text", "--verdict_file", "v.json"})->file, "v.json");
}

TEST(OptionsVerdictTest, TheRecordOfALauncherIsWhereItsOwnIsAwaited) {
  const auto get_variable = [](const std::string& name) {
    return name == "TORCHELASTIC_ERROR_FILE" ? std::optional<std::string>("/e.json") : std::nullopt;
  };
  const auto parsed = ParseOptions({"true"}, get_variable);
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(std::get<Options>(*parsed).verdict.record_file, "/e.json");
  EXPECT_EQ(Parse({})->record_file, "");
}

TEST(OptionsVerdictTest, WhatIsNotUnderstoodIsAnError) {
  EXPECT_THAT(std::string(Parse({"--verdict", "yaml"}).status().message()),
              ::testing::HasSubstr("text or json"));
  EXPECT_FALSE(Parse({"--verdict-file="}).ok());
}

}  // namespace
}  // namespace ddprun
