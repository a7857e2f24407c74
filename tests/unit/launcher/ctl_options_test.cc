// SPDX-License-Identifier: Apache-2.0
#include "launcher/ctl_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ddprun {
namespace {

using ::testing::HasSubstr;
using Arguments = std::vector<std::string>;

auto Parse(const Arguments& arguments, const Arguments& local = {}) {
  const auto none = [](const std::string&) -> std::optional<std::string> { return std::nullopt; };
  return ParseCtlOptions(arguments, none, local);
}

CtlOptions Parsed(const Arguments& arguments, const Arguments& local = {}) {
  const auto parsed = Parse(arguments, local);
  EXPECT_TRUE(parsed.ok()) << parsed.status();
  return parsed.ok() ? std::get<CtlOptions>(*parsed) : CtlOptions{};
}

std::string Error(const Arguments& arguments, const Arguments& local = {}) {
  const auto parsed = Parse(arguments, local);
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

TEST(CtlOptionsTest, TheOnlyRunOfThisMachineIsMeant) {
  EXPECT_EQ(TargetOf(Parsed({"stop", "--now"}, {"/run/a/service.sock"}).service),
            "unix:/run/a/service.sock");
  EXPECT_EQ(TargetOf(Parsed({"stop", "--master-addr", "::1"}, {"/run/a"}).service), "[::1]:29500");
  EXPECT_EQ(TargetOf(Parsed({"stop", "--socket", "/b"}, {"/run/a"}).service), "unix:/b");
  EXPECT_THAT(Error({"stop"}, {"/run/a", "/run/b"}), HasSubstr("one of /run/a, /run/b"));
  EXPECT_THAT(Error({"stop"}), HasSubstr("which rendezvous service?"));
}

TEST(CtlOptionsTest, WhatItDoesNotKnow) {
  EXPECT_THAT(Error({"halt"}), HasSubstr("does not know 'halt'"));
  EXPECT_THAT(Error({"stop", "job"}, {"/a"}), HasSubstr("does not know 'job'"));
  EXPECT_THAT(Error({"stop", "--force"}, {"/a"}), HasSubstr("does not know '--force'"));
  EXPECT_THAT(Error({"drain"}, {"/a"}), HasSubstr("needs NODE"));
  EXPECT_THAT(std::get<ShowText>(*Parse({})).text, HasSubstr("Usage: ddpctl COMMAND"));
  EXPECT_THAT(std::get<ShowText>(*Parse({"drain", "-h"})).text, HasSubstr("ddpctl drain NODE"));
}

}  // namespace
}  // namespace ddprun
