// SPDX-License-Identifier: Apache-2.0
#include "launcher/placement/role_ranks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ddprun {
namespace {

using ::testing::HasSubstr;

const std::vector<RoleWorkers> kRoles = {{"trainer", 3, 0}, {"eval", 2, 0}};

// The second of two nodes: the first has three trainers and four feeders.
Start SecondNode() {
  Start start{.node_rank = 1, .node_count = 2, .rank_first = 7, .world_size = 12};
  start.master_addr = "a";
  start.master_port = 1;
  start.roles = {{3, 6, 1, 2, "a", 2}, {0, 2, 0, 1, "b", 3}};
  return start;
}

WorkerEnv Env(const Start& start, bool by_role, int local_rank) {
  WorkerEnv env;
  SetRanks(start, kRoles, by_role, local_rank, env);
  return env;
}

TEST(RoleRanksTest, CountedInTheRole) {
  const WorkerEnv trainer = Env(SecondNode(), true, 2);
  EXPECT_EQ(trainer.role, "trainer");
  EXPECT_EQ(trainer.rank, 5);
  EXPECT_EQ(trainer.role_rank, 5);
  EXPECT_EQ(trainer.world_size, 6);
  EXPECT_EQ(trainer.local_rank, 2);
  EXPECT_EQ(trainer.local_world_size, 3);
  EXPECT_EQ(trainer.group_rank, 1);
  EXPECT_EQ(trainer.group_world_size, 2);
  EXPECT_EQ(trainer.master_addr, "a");
  EXPECT_EQ(trainer.master_port, 2);
  const WorkerEnv eval = Env(SecondNode(), true, 3);
  EXPECT_EQ(eval.role, "eval");
  EXPECT_EQ(eval.rank, 0);
  EXPECT_EQ(eval.world_size, 2);
  EXPECT_EQ(eval.local_rank, 0);
  EXPECT_EQ(eval.local_world_size, 2);
  EXPECT_EQ(eval.group_rank, 0);
  EXPECT_EQ(eval.group_world_size, 1);
  EXPECT_EQ(eval.master_addr, "b");
  EXPECT_EQ(eval.master_port, 3);
}

TEST(RoleRanksTest, CountedOverTheRun) {
  const WorkerEnv eval = Env(SecondNode(), false, 4);
  EXPECT_EQ(eval.rank, 11);
  EXPECT_EQ(eval.world_size, 12);
  EXPECT_EQ(eval.local_rank, 4);
  EXPECT_EQ(eval.local_world_size, 5);
  EXPECT_EQ(eval.group_rank, 1);
  EXPECT_EQ(eval.group_world_size, 2);
  EXPECT_EQ(eval.master_port, 1);
  EXPECT_EQ(eval.role, "eval");
  EXPECT_EQ(eval.role_rank, 1);
  EXPECT_EQ(eval.role_world_size, 2);
}

TEST(RoleRanksTest, OneProgramHasTheRanksOfItsNodesRole) {
  Start start = SecondNode();
  start.roles.clear();
  start.role_rank_first = 4;
  start.role_world_size = 9;
  WorkerEnv env;
  SetRanks(start, {{"trainer", 5, 0}}, false, 1, env);
  EXPECT_EQ(env.rank, 8);
  EXPECT_EQ(env.role_rank, 5);
  EXPECT_EQ(env.role_world_size, 9);
  EXPECT_EQ(env.local_world_size, 5);
}

TEST(RoleRanksTest, AServiceThatKnowsNoRolesIsNamed) {
  Options options;
  EXPECT_TRUE(CheckStart(Start{}, options, 1).ok());
  options.more_programs.emplace_back();
  EXPECT_TRUE(CheckStart(SecondNode(), options, 2).ok());
  EXPECT_THAT(std::string(CheckStart(Start{}, options, 2).message()),
              HasSubstr("install the same ddprun on all nodes"));
}

TEST(RoleRanksTest, ProcessGroupsOfRolesAreApart) {
  CollectivePlace place{Collective{"0", 3, "all_reduce"}, {{"0", 2, "barrier"}, {"7", 1, "send"}}};
  AddRole("eval", place);
  EXPECT_EQ(place.waits->group, "eval");
  EXPECT_EQ(place.last[0].group, "eval");
  EXPECT_EQ(place.last[1].group, "eval/7");
}

}  // namespace
}  // namespace ddprun
