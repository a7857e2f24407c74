// SPDX-License-Identifier: Apache-2.0
#include "launcher/ctl/ctl_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ddprun {
namespace {

using ::testing::ElementsAre;
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
  // That of a detached run.
  EXPECT_EQ(Parsed({"stop"}).service.endpoint, Endpoint());
  EXPECT_EQ(Parsed({"stop", "job7"}).run_id, "job7");
}

TEST(CtlOptionsTest, TheServiceOfADetachedRunIsReadFromItsRecord) {
  for (const char* text : {"unix:/a/b", "head:29400", "[::1]:7", "a:1,b:2,c:3"})
    EXPECT_EQ(TargetOf(*ParseService(text)), text);
  EXPECT_FALSE(ParseService("head:x").ok());
}

TEST(CtlOptionsTest, AttachNeedsNoService) {
  const CtlOptions options =
      Parsed({"attach", "--all", "job7", "--host", "user@far", "--rsh", "ssh -p 7"});
  EXPECT_EQ(options.command, CtlOptions::Command::kAttach);
  EXPECT_EQ(options.run_id, "job7");
  EXPECT_EQ(options.host, "user@far");
  EXPECT_EQ(options.rsh, "ssh -p 7");
  EXPECT_TRUE(options.whole && !options.serves);
  EXPECT_TRUE(Parsed({"runs", "--json"}).json);
  EXPECT_THAT(Error({"runs", "--rdzv-endpoint", "head"}), HasSubstr("--rdzv-endpoint"));
}

TEST(CtlOptionsTest, WhichLines) {
  const CtlOptions options = Parsed({"logs", "job7", "-f", "-n", "3", "--rank", "0-3,8", "--node",
                                     "0,node-b", "--stderr", "--socket", "/a"});
  EXPECT_EQ(options.command, CtlOptions::Command::kLogs);
  EXPECT_EQ(options.run_id, "job7");
  EXPECT_TRUE(options.watch.follow && options.watch.without_stdout);
  EXPECT_FALSE(options.watch.without_stderr);
  EXPECT_EQ(options.watch.lines, 3);
  EXPECT_THAT(options.watch.ranks, ElementsAre(RankRange{0, 3}, RankRange{8, 8}));
  EXPECT_THAT(options.nodes, ElementsAre("0", "node-b"));
  const CtlOptions plain = Parsed({"logs", "--socket", "/a"});
  EXPECT_EQ(plain.watch.lines, 10);
  EXPECT_TRUE(plain.run_id.empty() && !plain.watch.follow && !plain.watch.without_stdout);
  EXPECT_THAT(Error({"logs", "a", "--rdzv-id", "b", "--socket", "/a"}), HasSubstr("name one"));
  EXPECT_THAT(Error({"logs", "a", "b", "--socket", "/a"}), HasSubstr("does not know 'b'"));
  EXPECT_THAT(Error({"logs", "--rank", "x", "--socket", "/a"}), HasSubstr("--rank 'x' is not"));
  EXPECT_THAT(Error({"logs", "-n", "-1", "--socket", "/a"}), HasSubstr("--lines"));
}

TEST(CtlOptionsTest, StopWaitsWhereItIsAskedTo) {
  EXPECT_FALSE(Parsed({"stop", "--socket", "/a"}).wait);
  const CtlOptions options = Parsed({"stop", "--wait", "--wait-timeout", "7", "--socket", "/a"});
  EXPECT_TRUE(options.wait);
  EXPECT_EQ(options.wait_timeout, std::chrono::seconds(7));
}

TEST(CtlOptionsTest, StacksAreOfAllRanksOrOfOne) {
  EXPECT_FALSE(Parsed({"stacks", "--socket", "/a"}).rank);
  EXPECT_EQ(Parsed({"stacks", "3", "--socket", "/a"}).rank, 3);
  EXPECT_THAT(Error({"stacks", "node-b", "--socket", "/a"}),
              HasSubstr("takes the number of a rank, not 'node-b'"));
  EXPECT_THAT(Error({"stacks", "-1", "--socket", "/a"}), HasSubstr("-1"));
}

TEST(CtlOptionsTest, WhatItDoesNotKnow) {
  EXPECT_THAT(Error({"halt"}), HasSubstr("does not know 'halt'"));
  EXPECT_THAT(Error({"stop", "run", "job", "--socket", "/a"}), HasSubstr("does not know 'job'"));
  EXPECT_THAT(Error({"stop", "--force"}), HasSubstr("does not know '--force'"));
  EXPECT_THAT(Error({"drain", "--socket", "/a"}), HasSubstr("needs NODE"));
  EXPECT_THAT(std::get<ShowText>(*Parse({})).text, HasSubstr("Usage: ddpctl COMMAND"));
  EXPECT_THAT(std::get<ShowText>(*Parse({"drain", "-h"})).text, HasSubstr("ddpctl drain NODE"));
}

}  // namespace
}  // namespace ddprun
