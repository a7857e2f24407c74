// SPDX-License-Identifier: Apache-2.0
#include "proto/worker_env.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

namespace ddprun {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Pair;
using Environ = std::map<std::string, std::string>;

absl::StatusOr<WorkerEnv> Read(const Environ& environ) {
  return FromEnviron([&environ](const std::string& name) -> std::optional<std::string> {
    const auto it = environ.find(name);
    if (it == environ.end()) return std::nullopt;
    return it->second;
  });
}

Environ Write(const WorkerEnv& env) {
  Environ environ;
  for (const auto& [name, value] : ToEnviron(env)) environ[name] = value;
  return environ;
}

WorkerEnv FullEnv() {
  WorkerEnv env;
  env.rank = 5;
  env.local_rank = 1;
  env.world_size = 8;
  env.local_world_size = 2;
  env.group_rank = 2;
  env.group_world_size = 4;
  env.role = "trainer";
  env.role_rank = 3;
  env.role_world_size = 4;
  env.master_addr = "10.0.0.1";
  env.master_port = 29501;
  env.restart_count = 1;
  env.max_restarts = 3;
  env.run_id = "run 1";
  env.error_file = "/tmp/e.json";
  env.agent_socket = "/run/s";
  env.round = 7;
  env.one_round = true;
  env.console_is_terminal = true;
  return env;
}

TEST(WorkerEnvTest, WhatIsWrittenIsRead) {
  const Environ written = Write(FullEnv());
  const auto read = Read(written);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(Write(*read), written);
  EXPECT_EQ(written.size(), 20u);
}

TEST(WorkerEnvTest, TorchrunsNamesAreThere) {
  const Environ environ = Write(FullEnv());
  EXPECT_THAT(environ, Contains(Pair("RANK", "5")));
  EXPECT_THAT(environ, Contains(Pair("ROLE_RANK", "3")));
  EXPECT_THAT(environ, Contains(Pair("ROLE_WORLD_SIZE", "4")));
  EXPECT_THAT(environ, Contains(Pair("GROUP_WORLD_SIZE", "4")));
  EXPECT_THAT(environ, Contains(Pair("TORCHELASTIC_RUN_ID", "run 1")));
  EXPECT_THAT(environ, Contains(Pair("TORCHELASTIC_USE_AGENT_STORE", "False")));
}

TEST(WorkerEnvTest, WhatIsAbsentIsNotWritten) {
  WorkerEnv env = FullEnv();
  env.error_file = env.agent_socket = "";
  env.round = 0;
  env.one_round = env.console_is_terminal = false;
  const Environ environ = Write(env);
  for (const char* name : {"TORCHELASTIC_ERROR_FILE", "DDPRUN_AGENT_SOCKET", "DDPRUN_ROUND",
                           "DDPRUN_ONE_ROUND", "DDPRUN_CONSOLE_TERMINAL"}) {
    EXPECT_FALSE(environ.contains(name)) << name;
  }
}

TEST(WorkerEnvTest, NothingSetIsAWorldOfOne) {
  const auto env = Read({});
  ASSERT_TRUE(env.ok());
  EXPECT_EQ(env->world_size, 1);
  EXPECT_EQ(env->rank, 0);
  EXPECT_EQ(env->master_addr, "");
}

TEST(WorkerEnvTest, TheFourSuffice) {
  const auto env =
      Read({{"RANK", "3"}, {"WORLD_SIZE", "4"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "1"}});
  ASSERT_TRUE(env.ok()) << env.status();
  EXPECT_EQ(env->local_rank, 3);
  EXPECT_EQ(env->local_world_size, 4);
  EXPECT_EQ(env->group_world_size, 1);
}

TEST(WorkerEnvTest, SlurmSetsTheLocalRankToo) {
  const auto env = Read({{"RANK", "5"},
                         {"WORLD_SIZE", "8"},
                         {"MASTER_ADDR", "a"},
                         {"MASTER_PORT", "1"},
                         {"LOCAL_RANK", "1"}});
  ASSERT_TRUE(env.ok()) << env.status();
  EXPECT_EQ(env->rank, 5);
  EXPECT_EQ(env->local_rank, 1);
}

TEST(WorkerEnvTest, EachMissingOrBadVariableIsNamed) {
  const Environ good = {
      {"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "29500"}};
  const auto with = [&good](const std::string& name, const std::string& value) {
    Environ changed = good;
    changed[name] = value;
    return std::string(Read(changed).status().message());
  };
  for (const auto& entry : good) {
    Environ partial = good;
    partial.erase(entry.first);
    EXPECT_THAT(std::string(Read(partial).status().message()),
                HasSubstr(entry.first + " is not set"));
  }
  EXPECT_EQ(with("RANK", "x"), "RANK='x' is not a whole number");
  EXPECT_EQ(with("RANK", "2"), "RANK=2 is out of range: it must be 0 to 1");
  EXPECT_EQ(with("WORLD_SIZE", "0"), "WORLD_SIZE=0 is out of range: it must be 1 to 2147483647");
  EXPECT_EQ(with("MASTER_PORT", "70000"),
            "MASTER_PORT=70000 is out of range: it must be 1 to 65535");
  EXPECT_EQ(with("LOCAL_RANK", "-1"), "LOCAL_RANK=-1 is out of range: it must be 0 to 2147483647");
  EXPECT_EQ(with("LOCAL_WORLD_SIZE", "3"), "LOCAL_WORLD_SIZE=3 is out of range: it must be 1 to 2");
  EXPECT_EQ(with("TORCHELASTIC_RESTART_COUNT", "1.5"),
            "TORCHELASTIC_RESTART_COUNT='1.5' is not a whole number");
  EXPECT_EQ(with("DDPRUN_ROUND", "-1"), "DDPRUN_ROUND='-1' is not a number of 0 or more");
  EXPECT_EQ(with("WORLD_SIZE", "99999999999"), "WORLD_SIZE='99999999999' is not a whole number");
}

TEST(WorkerEnvTest, ALocalRankBeyondTheLocalWorldIsRefused) {
  const auto env = Read({{"RANK", "1"},
                         {"WORLD_SIZE", "2"},
                         {"MASTER_ADDR", "a"},
                         {"MASTER_PORT", "1"},
                         {"LOCAL_RANK", "1"},
                         {"LOCAL_WORLD_SIZE", "1"}});
  EXPECT_THAT(std::string(env.status().message()), HasSubstr("LOCAL_RANK=1 is out of range"));
}

}  // namespace
}  // namespace ddprun
