// SPDX-License-Identifier: Apache-2.0
#include "launcher/options/run_flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launcher/hosts/hosts_plan.h"
#include "tests/unit/launcher/options_fixture.h"

namespace ddprun {
namespace {

using testing::Contains;
using testing::HasSubstr;

absl::StatusOr<std::variant<Options, ShowText>> Parse(const std::vector<std::string>& arguments,
                                                      const Variables& variables = {}) {
  return ParseOptions(arguments, From(variables), NoFiles, Purpose::kDoctor);
}

Options Parsed(const std::vector<std::string>& arguments, const Variables& variables = {}) {
  const auto parsed = Parse(arguments, variables);
  EXPECT_TRUE(parsed.ok()) << parsed.status();
  return parsed.ok() ? std::get<Options>(*parsed) : Options();
}

TEST(OptionsDoctor, NeedsNoProgramAndHasDefaults) {
  const Options options = Parsed({});
  ASSERT_TRUE(options.doctor.has_value());
  EXPECT_EQ(options.doctor->timeout, std::chrono::seconds(10));
  EXPECT_FALSE(options.doctor->json);
  EXPECT_EQ(options.nodes, 1);
}

TEST(OptionsDoctor, TakesTheFlagsOfTheRunAndItsOwn) {
  const Options options =
      Parsed({"--nnodes=2", "--node-rank", "1", "--master-addr", "a", "--timeout", "2.5", "--json",
              "--python", "python3", "train", "--json"},
             {{"PET_MASTER_PORT", "1234"}});
  EXPECT_EQ(options.doctor->timeout, std::chrono::milliseconds(2500));
  EXPECT_TRUE(options.doctor->json);
  EXPECT_EQ(options.doctor->python, "python3");
  EXPECT_EQ(options.node_rank, 1);
  EXPECT_EQ(options.master_port, 1234);
  EXPECT_EQ(options.program, (std::vector<std::string>{"train", "--json"}));
}

TEST(OptionsDoctor, ARunDoesNotHaveThem) {
  EXPECT_THAT(std::string(ParseLine("--json", Variables()).status().message()),
              HasSubstr("unknown flag --json"));
  EXPECT_FALSE(ParsedLine("").doctor.has_value());
}

TEST(OptionsDoctor, WhatMakesNoSenseIsRefused) {
  EXPECT_THAT(std::string(Parse({"--dry-run"}).status().message()), HasSubstr("starts nothing"));
  EXPECT_THAT(std::string(Parse({"--nope"}).status().message()), HasSubstr("ddprun doctor --help"));
  EXPECT_THAT(std::string(Parse({"--timeout", "soon"}).status().message()), HasSubstr("--timeout"));
}

TEST(OptionsDoctor, HelpNamesTheFlags) {
  const auto parsed = Parse({"--help"});
  ASSERT_TRUE(parsed.ok());
  const std::string text = std::get<ShowText>(*parsed).text;
  for (const char* words : {"ddprun doctor", "--timeout", "--python", "--master-addr", "--hosts"})
    EXPECT_THAT(text, HasSubstr(words));
}

TEST(OptionsDoctor, OneCommandForAllHostsGoesOnWithThoseThatAnswer) {
  const Options options = Parsed({"-H", "a,b,c", "--timeout=3", "train"});
  const absl::StatusOr<HostsPlan> plan =
      MakeHostsPlan(options, options.hosts.hosts,
                    {.own_path = "/ddprun",
                     .folder = "/",
                     .run_id = "x",
                     .environment = {},
                     .is_this_machine = [](const std::string&) { return false; }});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->nodes_min, 1);
  EXPECT_EQ(plan->nodes_max, 3);
  const std::vector<std::string>& arguments = plan->transports[2].setup.arguments;
  EXPECT_EQ(arguments.front(), "--doctor=3");
  EXPECT_THAT(arguments, Contains("--timeout=3"));
  EXPECT_EQ(arguments.back(), "train");
}

}  // namespace
}  // namespace ddprun
