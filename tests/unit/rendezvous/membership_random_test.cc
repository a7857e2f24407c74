// SPDX-License-Identifier: Apache-2.0
// Random nodes that join, fail, stop, leave and vanish at random times. The invariants are checked
// after every step, and so is what only the whole history shows: no node hears of two causes for a
// round, or of anything after the end.
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

#include "tests/unit/rendezvous/membership_fixture.h"

namespace ddprun {
namespace {

class RandomHistory {
 public:
  explicit RandomHistory(unsigned seed) : random_(seed) {}

  void Steps(int count) {
    for (int i = 0; i < count && !::testing::Test::HasFailure(); ++i) {
      if (IsDrained(run_.state) && run_.state.rules) Restart();
      run_.now += std::chrono::milliseconds(Below(200));
      run_.effects.clear();
      if (const auto due = NextDeadline(run_.state); due && Below(50) == 0) {
        run_.TicksAt(std::max(run_.now, *due));
      } else {
        OneEvent();
      }
      Check();
    }
  }

  std::set<RunPhase> seen;
  int rounds = 0;
  int verdicts = 0;

 private:
  int Below(int limit) { return std::uniform_int_distribution<int>(0, limit - 1)(random_); }

  void Restart() {
    run_ = TestRun();
    causes_.clear();
    ended_.clear();
    nodes_ = 1 + Below(4);
    nodes_min_ = Below(2) == 0 ? nodes_ : 1 + Below(nodes_);
    restarts_ = Below(4);
    lease_ = std::chrono::milliseconds(Below(2) == 0 ? 0 : 500);
    rank_order_ = static_cast<RankOrder>(Below(3));
    policy_ = {};
    if (Below(2) == 0) return;
    policy_.window = std::chrono::milliseconds(Below(3000));
    policy_.reset = std::chrono::milliseconds(Below(2) * 2000);
    policy_.no_progress_max = Below(4);
    if (Below(2) == 0) policy_.never_codes = {{100, 150}};
    policy_.node_failures_max = Below(3);
    policy_.node_cooldown = std::chrono::milliseconds(Below(2) * 1000);
    policy_.delay = std::chrono::milliseconds(Below(2) * 300);
  }

  // Mostly a member, now and then one that has gone.
  LinkId AnyLink() {
    if (run_.state.links.empty() || Below(10) == 0) {
      return LinkId{1 + static_cast<std::uint64_t>(Below(hosts_ + 1))};
    }
    return std::next(run_.state.links.begin(), Below(static_cast<int>(run_.state.links.size())))
        ->first;
  }

  const Member& AnyMember() {
    return std::next(run_.state.members.begin(), Below(static_cast<int>(run_.state.members.size())))
        ->second;
  }

  void OneEvent() {
    // Mostly the round in progress, now and then another.
    const RoundId round =
        Below(8) == 0 ? RoundId{static_cast<std::uint64_t>(Below(5))} : run_.state.round;
    switch (Below(14)) {
      case 0:
      case 1:
      case 2: {
        JoinOptions options{.nodes = Below(20) == 0 ? nodes_ + 1 : nodes_,
                            .restarts = Below(20) == 0 ? restarts_ + 1 : restarts_,
                            .local_world_size = 1 + Below(3),
                            .nodes_min = nodes_min_,
                            .lease = lease_,
                            .last_call = std::chrono::milliseconds(Below(300)),
                            .policy = policy_,
                            .role = Below(2) == 0 ? "a" : "b",
                            .rank_order = rank_order_,
                            .topology = "s" + std::to_string(8 + Below(3))};
        if (Below(3) == 0 && !run_.state.members.empty()) {
          options.resume = Below(4) != 0;
          run_.Joins(AnyMember().join.host, options);
          return;
        }
        if (Below(2) == 0) options.node_rank = Below(nodes_ + 1);
        run_.Joins("h" + std::to_string(++hosts_), options);
        return;
      }
      case 3:
        run_.Reports(AnyLink(), WorkerFailed{round, ExitedWith(1 + Below(250))});
        return;
      case 4:
      case 5:
        run_.Reports(AnyLink(), NodeSucceeded{round});
        return;
      case 6:
      case 7:
      case 8:
      case 9:
        run_.Reports(AnyLink(), NodeStopped{round, Below(65536)});
        return;
      case 10:
      case 11:
      case 12:
        if (Below(8) == 0) {
          run_.Reports(AnyLink(), Leave{InterruptedBy(2), Below(4) == 0, Below(4) == 0});
        } else if (Below(3) == 0) {
          run_.Reports(AnyLink(), Heartbeat{});
        } else {
          run_.Do(Tick{});
        }
        return;
      default:
        if (Below(3) == 0) run_.Goes(AnyLink());
        if (Below(12) == 0 && !run_.state.members.empty()) {
          run_.Do(NodeLost{AnyMember().join.node_id, "dead"});
        }
        return;
    }
  }

  void Check() {
    seen.insert(run_.state.phase);
    for (const MembershipEffect& effect : run_.effects) {
      if (std::holds_alternative<RoundChanged>(effect)) ++rounds;
      if (const auto* end = std::get_if<EndStream>(&effect)) {
        EXPECT_TRUE(ended_.insert(end->link).second) << "a stream was ended twice";
        continue;
      }
      const auto* send = std::get_if<SendDirective>(&effect);
      if (send == nullptr) continue;
      EXPECT_FALSE(ended_.contains(send->link)) << "something was sent after the end";
      if (const auto* stop = std::get_if<Stop>(&send->directive)) {
        const auto [it, is_new] = causes_.emplace(stop->round, stop->cause);
        EXPECT_TRUE(it->second == stop->cause || stop->cause.kind == FailureKind::kNodeLost ||
                    stop->cause.kind == FailureKind::kNodeInterrupted)
            << "two causes for one round";
      }
      if (std::holds_alternative<Finish>(send->directive)) ++verdicts;
    }
  }

  std::mt19937 random_;
  TestRun run_;
  int nodes_ = 2;
  int nodes_min_ = 2;
  std::chrono::milliseconds lease_{0};
  RestartPolicy policy_;
  RankOrder rank_order_ = RankOrder::kJoin;
  int restarts_ = 1;
  int hosts_ = 0;
  std::map<RoundId, Failure> causes_;
  std::set<LinkId> ended_;
};

TEST(MembershipRandomTest, InvariantsHoldOverRandomHistories) {
  std::set<RunPhase> seen;
  int rounds = 0;
  int verdicts = 0;
  for (unsigned seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    RandomHistory history(seed);
    history.Steps(2000);
    seen.insert(history.seen.begin(), history.seen.end());
    rounds += history.rounds;
    verdicts += history.verdicts;
  }
  EXPECT_EQ(seen.size(), 4u);
  EXPECT_GT(rounds, 100) << "the histories are too tame to show anything";
  EXPECT_GT(verdicts, 100);
}

TEST(MembershipRandomTest, InvariantsCanFail) {
  TestRun run;
  run.Joins("a");
  run.Joins("b");
  RunState before = run.state;
  RunState after = before;
  after.members.begin()->second.node_rank = after.members.rbegin()->second.node_rank;
  EXPECT_FALSE(CheckInvariants(before, after).ok());
  after = before;
  after.links.clear();
  EXPECT_FALSE(CheckInvariants(before, after).ok());
  after = before;
  after.running = 1;
  EXPECT_FALSE(CheckInvariants(before, after).ok());
  after = before;
  after.round = RoundId{3};
  EXPECT_FALSE(CheckInvariants(before, after).ok());
  after = before;
  after.phase = RunPhase::kBroken;
  EXPECT_FALSE(CheckInvariants(before, after).ok());
  after = before;
  after.start->world_size = 1;
  EXPECT_FALSE(CheckInvariants(before, after).ok());
  EXPECT_TRUE(CheckInvariants(before, before).ok());
}

}  // namespace
}  // namespace ddprun
