// SPDX-License-Identifier: Apache-2.0
#include "launcher/command_line/config_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launcher/command_line/parse_options.h"
#include "launcher/options/options.h"

namespace ddprun {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

const std::vector<Flag>& Flags() {
  static const std::vector<Flag> flags = AllFlags();
  return flags;
}

auto Parse(const std::string& text) { return ParseConfigFile(text, "c.yaml", Flags()); }

std::string Error(const std::string& text) {
  const auto config = Parse(text);
  EXPECT_FALSE(config.ok()) << text;
  return std::string(config.status().message());
}

TEST(ConfigFileTest, FlagsProgramAndVariables) {
  const auto config = Parse(
      "nnodes: 2\n"
      "nproc_per_node: gpu   # of this machine\n"
      "standalone: true\n"
      "rdzv-conf: {join_timeout: 60, is_host: true}\n"
      "role: [a, b]\n"
      "env:\n  NCCL_DEBUG: INFO\n  A: '1'\n"
      "program: [train, --epochs, 10, '']\n");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->values.at("--nnodes").text, "2");
  EXPECT_EQ(config->values.at("--nnodes").source, "c.yaml: nnodes");
  EXPECT_EQ(config->values.at("--nproc-per-node").text, "gpu");
  EXPECT_EQ(config->values.at("--standalone").text, "true");
  EXPECT_EQ(config->values.at("--rdzv-conf").text, "join_timeout=60,is_host=true");
  EXPECT_EQ(config->values.at("--role").text, "a,b");
  EXPECT_THAT(config->env, ElementsAre(Pair("NCCL_DEBUG", "INFO"), Pair("A", "1")));
  EXPECT_THAT(config->program, ElementsAre("train", "--epochs", "10", ""));
}

TEST(ConfigFileTest, TextStaysAsItIsWritten) {
  // YAML 1.1 would make a number of base 60, an octal number and a bool of these.
  const auto config = Parse("nnodes: 1:30\nrole: 010\nrdzv-id: no\nprogram: x\n");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->values.at("--nnodes").text, "1:30");
  EXPECT_EQ(config->values.at("--role").text, "010");
  EXPECT_EQ(config->values.at("--rdzv-id").text, "no");
  EXPECT_THAT(config->program, ElementsAre("x"));
}

TEST(ConfigFileTest, AnEmptyFileSaysNothing) {
  for (const char* text : {"", "# nothing\n", "---\n"}) {
    const auto config = Parse(text);
    ASSERT_TRUE(config.ok()) << config.status();
    EXPECT_THAT(config->values, IsEmpty());
  }
}

TEST(ConfigFileTest, AnUnknownKeyAndTheNearestOne) {
  EXPECT_THAT(Error("nproc_per_nodes: 2"),
              AllOf(HasSubstr("c.yaml has the unknown key 'nproc-per-nodes'"),
                    HasSubstr("did you mean nproc-per-node?")));
  EXPECT_THAT(Error("programm: [x]"), HasSubstr("did you mean program?"));
  EXPECT_THAT(Error("learning-rate: 1"), HasSubstr("keys are flags without --"));
  EXPECT_THAT(Error("config: other.yaml"), HasSubstr("unknown key 'config'"));
}

TEST(ConfigFileTest, WhatCannotBeMeant) {
  EXPECT_THAT(Error("nnodes: 2\nnnodes: 3"), HasSubstr("the key 'nnodes' twice"));
  EXPECT_THAT(Error("node_rank: 2\nnode-rank: 3"), HasSubstr("the key 'node-rank' twice"));
  EXPECT_THAT(Error("nnodes:"), HasSubstr("no value for nnodes"));
  EXPECT_THAT(Error("nnodes: [[1]]"), HasSubstr("lists in lists under nnodes"));
  EXPECT_THAT(Error("- nnodes"), HasSubstr("KEY: VALUE"));
  EXPECT_THAT(Error("program: train --epochs 1"), HasSubstr("[NAME, ARGUMENT, ...]"));
  EXPECT_THAT(Error("program: [[x]]"), HasSubstr("no text"));
  EXPECT_THAT(Error("env: [A=1]"), HasSubstr("{NAME: VALUE}"));
  EXPECT_THAT(Error("env: {A: [1]}"), HasSubstr("NAME: VALUE"));
  EXPECT_THAT(Error("env: {'A=B': 1}"), HasSubstr("'A=B'"));
  EXPECT_THAT(Error("nnodes: 1\nrole: [a"),
              HasSubstr("of the configuration file c.yaml is not YAML"));
}

TEST(ConfigFileTest, AFlagThatRepeatsIsAList) {
  const auto config = Parse("wrap: ['0:gdb --args', '1-2:time']");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->values.at("--wrap").text, "0:gdb --args\n1-2:time");
}

TEST(ConfigFileTest, ASecretDoesNotBelongThere) {
  EXPECT_THAT(Error("env: {DDPRUN_TOKEN: abc}"),
              AllOf(HasSubstr("token-file"), ::testing::Not(HasSubstr("abc"))));
}

}  // namespace
}  // namespace ddprun
