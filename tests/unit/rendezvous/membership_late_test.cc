// SPDX-License-Identifier: Apache-2.0
// Nodes whose workers run on long after those of the others have ended: who is told of it, and
// when.
#include <gtest/gtest.h>

#include "rendezvous/base/limits.h"
#include "tests/unit/rendezvous/membership_fixture.h"

namespace ddprun {
namespace {

constexpr RoundId kFirst{1};

// Nodes a, b and c of two ranks each.
class LateTest : public ::testing::Test {
 protected:
  void Begin(std::vector<RoleWorkers> roles = {}) {
    JoinOptions options{.nodes = 3, .restarts = 1, .local_world_size = 2, .hosts_service = true};
    options.roles = std::move(roles);
    a = run.Joins("a", options);
    options.hosts_service = false;
    b = run.Joins("b", options);
    c = run.Joins("c", options);
    ASSERT_EQ(run.state.phase, RunPhase::kSealed);
  }
  void Succeeds(LinkId link) { run.Reports(link, NodeSucceeded{kFirst}); }

  TestRun run;
  LinkId a{}, b{}, c{};
};

TEST_F(LateTest, TheLastNodeAndNodeZeroAreToldOnce) {
  Begin();
  Succeeds(a);
  Succeeds(c);
  run.PassesUntil(run.now + kLateEndTime - std::chrono::milliseconds(1));
  EXPECT_FALSE(run.Sent<Waiting>(b));
  run.PassesUntil(run.now + std::chrono::milliseconds(1));
  for (const LinkId told : {a, b}) {
    ASSERT_TRUE(run.Sent<Waiting>(told));
    EXPECT_EQ(run.Sent<Waiting>(told)->reason,
              "ranks 2-3 still run, 60 s after the other nodes' ranks have ended with code 0; "
              "`ddpctl stacks 2` prints what rank 2 does");
  }
  EXPECT_FALSE(run.Sent<Waiting>(c));
  ASSERT_FALSE(run.notes.empty());
  EXPECT_EQ(run.notes.back().kind, NoticeKind::kRanksWait);
  EXPECT_EQ(run.state.phase, RunPhase::kSealed) << "nothing is killed";
  run.PassesUntil(run.now + std::chrono::hours(1));
  EXPECT_FALSE(run.Sent<Waiting>(b)) << "once";
  Succeeds(b);
  EXPECT_EQ(run.state.phase, RunPhase::kClosed);
}

TEST_F(LateTest, TheTimeCountsFromTheLastNodeThatEnded) {
  Begin();
  Succeeds(a);
  run.PassesUntil(run.now + kLateEndTime);
  EXPECT_FALSE(run.Sent<Waiting>(b)) << "most still run";
  Succeeds(c);
  run.PassesUntil(run.now + kLateEndTime - std::chrono::milliseconds(1));
  EXPECT_FALSE(run.Sent<Waiting>(b));
  run.PassesUntil(run.now + std::chrono::milliseconds(1));
  EXPECT_TRUE(run.Sent<Waiting>(b));
}

TEST_F(LateTest, ANewRoundBeginsAnew) {
  Begin();
  Succeeds(a);
  Succeeds(c);
  run.Reports(b, WorkerFailed{kFirst, ExitedWith(1)});
  for (const LinkId link : {a, b, c}) run.Reports(link, NodeStopped{kFirst, 1});
  ASSERT_EQ(run.state.round, RoundId{2});
  run.PassesUntil(run.now + std::chrono::hours(1));
  EXPECT_FALSE(run.Sent<Waiting>(b));
}

TEST_F(LateTest, RolesMayEndAtDifferentTimes) {
  Begin({{.name = "feed", .workers = 1, .worker_port = 1},
         {.name = "fit", .workers = 1, .worker_port = 2}});
  Succeeds(a);
  Succeeds(c);
  run.PassesUntil(run.now + std::chrono::hours(1));
  EXPECT_FALSE(run.Sent<Waiting>(b));
}

}  // namespace
}  // namespace ddprun
