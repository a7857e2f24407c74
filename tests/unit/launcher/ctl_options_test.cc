// SPDX-License-Identifier: Apache-2.0
#include "launcher/ctl_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ddprun {
namespace {

using ::testing::HasSubstr;
using Arguments = std::vector<std::string>;

auto Parse(const Arguments& arguments) {
  const auto none = [](const std::string&) -> std::optional<std::string> { return std::nullopt; };
  return ParseCtlOptions(arguments, none);
}

CtlOptions Parsed(const Arguments& arguments) {
  const auto parsed = Parse(arguments);
  EXPECT_TRUE(parsed.ok()) << parsed.status();
  return parsed.ok() ? std::get<CtlOptions>(*parsed) : CtlOptions{};
}

std::string Error(const Arguments& arguments) {
  const auto parsed = Parse(arguments);
  EXPECT_TRUE(absl::IsInvalidArgument(parsed.status()));
  return std::string(parsed.status().message());
}

TEST(CtlOptionsTest, FlagsStandBeforeAndAfterTheNode) {
  const CtlOptions options = Parsed(
      {"drain", "--rdzv-endpoint", "head", "node-7", "--force", "--rdzv-id", "job", "--dry-run"});
  EXPECT_EQ(options.command, CtlOptions::Command::kDrain);
  EXPECT_EQ(options.node, "node-7");
  EXPECT_EQ(options.service.endpoint, (Endpoint{"head", 29400}));
  EXPECT_EQ(options.run_id, "job");
  EXPECT_TRUE(options.force && options.dry_run && !options.at_next_round);
}

TEST(CtlOptionsTest, WhereTheServiceIs) {
  EXPECT_EQ(TargetOf(Parsed({"stop", "--master-addr", "::1"}).service), "[::1]:29500");
  EXPECT_EQ(TargetOf(Parsed({"stop", "--now", "--socket", "/b"}).service), "unix:/b");
  EXPECT_THAT(Error({"stop"}), HasSubstr("which rendezvous service?"));
}

TEST(CtlOptionsTest, WhatItDoesNotKnow) {
  EXPECT_THAT(Error({"halt"}), HasSubstr("does not know 'halt'"));
  EXPECT_THAT(Error({"stop", "job", "--socket", "/a"}), HasSubstr("does not know 'job'"));
  EXPECT_THAT(Error({"stop", "--force"}), HasSubstr("does not know '--force'"));
  EXPECT_THAT(Error({"drain", "--socket", "/a"}), HasSubstr("needs NODE"));
  EXPECT_THAT(std::get<ShowText>(*Parse({})).text, HasSubstr("Usage: ddpctl COMMAND"));
  EXPECT_THAT(std::get<ShowText>(*Parse({"drain", "-h"})).text, HasSubstr("ddpctl drain NODE"));
}

}  // namespace
}  // namespace ddprun
