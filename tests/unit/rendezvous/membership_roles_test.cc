// SPDX-License-Identifier: Apache-2.0
// Nodes whose workers have several roles.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/rendezvous/membership_fixture.h"

namespace ddprun {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

JoinOptions With(std::vector<RoleWorkers> roles) {
  JoinOptions options{.restarts = 1};
  options.local_world_size = 0;
  for (const RoleWorkers& role : roles) options.local_world_size += role.workers;
  options.roles = std::move(roles);
  options.ranks_by_role = true;
  return options;
}

TEST(MembershipRolesTest, RanksOfARoleAreCountedOverItsNodes) {
  TestRun run;
  const LinkId a = run.Joins("a", With({{"actor", 3, 11}, {"learner", 1, 12}}));
  const LinkId b = run.Joins("b", With({{"judge", 2, 21}, {"actor", 2, 22}}));
  const Start of_a = *run.Sent<Start>(a);
  const Start of_b = *run.Sent<Start>(b);
  EXPECT_EQ(of_a.world_size, 8);
  EXPECT_EQ(of_b.rank_first, 4);
  EXPECT_THAT(of_a.roles, ElementsAre(RoleRanks{0, 5, 0, 2, "addr-a", 11},
                                      RoleRanks{0, 1, 0, 1, "addr-a", 12}));
  EXPECT_THAT(of_b.roles, ElementsAre(RoleRanks{0, 2, 0, 1, "addr-b", 21},
                                      RoleRanks{3, 5, 1, 2, "addr-a", 11}));
}

TEST(MembershipRolesTest, AFailureNamesTheRoleAndTheNextRoundHasOtherPorts) {
  TestRun run;
  const LinkId a = run.Joins("a", With({{"actor", 3, 11}, {"learner", 1, 12}}));
  const LinkId b = run.Joins("b", With({{"actor", 2, 22}}));
  Failure failure = ExitedWith(3);
  failure.rank = 5;
  run.Reports(b, WorkerFailed{RoundId{1}, failure});
  EXPECT_EQ(run.state.cause->role, "actor");
  EXPECT_EQ(run.state.cause->role_rank, 4);
  EXPECT_THAT(ToSentence(*run.state.cause), HasSubstr("rank 5 (rank 4 of actor, local rank 1 on"));
  run.Reports(a, NodeStopped{.round = RoundId{1}, .worker_port = 31, .role_ports = {31, 32}});
  run.Reports(b, NodeStopped{.round = RoundId{1}, .worker_port = 41, .role_ports = {41}});
  EXPECT_EQ(run.Sent<Start>(a)->roles[1].master_port, 32);
  EXPECT_EQ(run.Sent<Start>(b)->roles[0].master_port, 31);
}

TEST(MembershipRolesTest, TheWorkersOfOneProgramHaveNoRolesInTheStart) {
  TestRun run;
  const LinkId a = run.Joins("a", {.nodes = 1, .local_world_size = 2, .role = "x"});
  EXPECT_THAT(run.Sent<Start>(a)->roles, IsEmpty());
}

TEST(MembershipRolesTest, NodesMustCountAlike) {
  TestRun run;
  run.Joins("a", With({{"actor", 3, 11}}));
  const LinkId b = run.Joins("b", {.restarts = 1});
  EXPECT_EQ(run.RefusalOf(b),
            "node b was started with --ranks-by run, the run has --ranks-by role (set by node a); "
            "start all nodes with the same --ranks-by (role is the default of a node with several "
            "programs)");
}

TEST(MembershipRolesTest, RolesThatCannotBeAreRefused) {
  const auto refusal = [](JoinOptions options, int workers) {
    TestRun run;
    options.local_world_size = workers;
    return run.RefusalOf(run.Joins("a", options));
  };
  EXPECT_THAT(refusal(With({{"x", 1, 1}, {"x", 1, 2}}), 2), HasSubstr("role 'x' that is named"));
  EXPECT_THAT(refusal(With({{"x", 1, 0}}), 1), HasSubstr("role 'x'"));
  EXPECT_THAT(refusal(With({{"x", 0, 1}}), 1), HasSubstr("role 'x'"));
  EXPECT_THAT(refusal(With({{"x", 1, 1}}), 2), HasSubstr("2 workers, of which 1 have a role"));
  EXPECT_THAT(refusal(With({}), 2), HasSubstr("2 workers, of which 0 have a role"));
}

}  // namespace
}  // namespace ddprun
