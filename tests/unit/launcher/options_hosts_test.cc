// SPDX-License-Identifier: Apache-2.0
#include "launcher/options/run_flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launcher/command_line/parse_options.h"
#include "launcher/options/options.h"

namespace ddprun {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

auto Parse(std::vector<std::string> arguments) {
  arguments.emplace_back("train");
  return ParseOptions(arguments, [](const std::string& name) {
    return name == "PET_MAX_RESTARTS" ? std::optional<std::string>("2") : std::nullopt;
  });
}

HostOptions Hosts(std::vector<std::string> arguments) {
  auto options = Parse(std::move(arguments));
  EXPECT_TRUE(options.ok()) << options.status();
  return options.ok() ? std::get<Options>(*options).hosts : HostOptions();
}

std::string Error(std::vector<std::string> arguments) {
  return std::string(Parse(std::move(arguments)).status().message());
}

TEST(OptionsHosts, IsHeadOnlyWhereHostsAreGiven) {
  EXPECT_FALSE(Hosts({}).asked());
  EXPECT_TRUE(Hosts({"-H", "a:2"}).asked());
  EXPECT_TRUE(Hosts({"--hostfile", "f"}).asked());
  EXPECT_TRUE(Hosts({"--srun"}).asked());
  EXPECT_THAT(Hosts({"--hosts", "a:2"}).hosts, ElementsAre(HostEntry{"a", 2}));
}

TEST(OptionsHosts, ExportsMayBeRepeated) {
  EXPECT_THAT(Hosts({"-H", "a", "-x", "A", "-x", "B=1,2", "--export=C="}).exports,
              ElementsAre("A", "B=1,2", "C="));
}

TEST(OptionsHosts, WhatVariablesSayIsForwardedToo) {
  EXPECT_THAT(Hosts({"-H", "a", "--nnodes", "1", "--role", "r"}).forwarded,
              ElementsAre("--max-restarts=2", "--role=r"));
}

TEST(OptionsHosts, NeedsNoAddressOfTheFirstNode) {
  EXPECT_TRUE(Hosts({"-H", "a,b", "--nnodes", "2"}).has_nnodes);
}

TEST(OptionsHosts, SaysWhatContradicts) {
  EXPECT_THAT(Error({"-H", "a", "--srun"}), HasSubstr("give one of them"));
  EXPECT_THAT(Error({"-H", "a", "--standalone"}), HasSubstr("--standalone"));
  EXPECT_THAT(Error({"-H", "a", "--node-rank", "0"}), HasSubstr("starts them all"));
  EXPECT_THAT(Error({"--srun", "--rsh", "x"}), HasSubstr("contradict"));
  EXPECT_THAT(Error({"--rsh", "x"}), HasSubstr("give their hosts"));
  EXPECT_THAT(Error({"-H", "a", "-x", "=1"}), HasSubstr("NAME or NAME=VALUE"));
  EXPECT_THAT(Error({"-H", "a,,b"}), HasSubstr("--hosts 'a,,b' has an empty name"));
}

}  // namespace
}  // namespace ddprun
