// SPDX-License-Identifier: Apache-2.0
#include "launcher/simulate/fleet.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <utility>

#include "absl/strings/str_split.h"
#include "launcher/simulate/simulate_options.h"

namespace ddprun {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;

// Steps begin after 5 s; ten seconds of them, a checkpoint of one, and so on.
FleetPlan Four(std::vector<FleetFailure> failures) {
  FleetPlan plan;
  plan.nodes = 4;
  plan.duration = seconds(115);
  plan.failures = std::move(failures);
  plan.repair = hours(1);
  plan.checkpoint_every = seconds(10);
  plan.checkpoint_cost = seconds(1);
  plan.restart_cost = seconds(5);
  plan.in_place_cost = seconds(1);
  plan.lease = seconds(8);
  return plan;
}

using Times = std::map<FleetTime, double>;

// In seconds of the whole fleet, those that are not 0.
Times TimesOf(const FleetPlan& plan, const FleetRun& run) {
  Times times;
  double sum = 0;
  for (std::size_t i = 0; i < kFleetTimes; ++i) {
    const auto kind = static_cast<FleetTime>(i);
    sum += run[kind];
    // To the millisecond: sums of doubles.
    const double time = std::round(1000 * run[kind] / plan.nodes) / 1000;
    if (time > 0) times[kind] = time;
  }
  EXPECT_NEAR(sum / plan.nodes, std::chrono::duration<double>(plan.duration).count(), 1e-6);
  return times;
}

Times Simulated(const FleetPlan& plan) { return TimesOf(plan, SimulateFleet(plan, 1)); }

constexpr FleetFailure kProcess{seconds(31), true};
constexpr FleetFailure kMachine{seconds(31)};

TEST(Fleet, WithoutFailuresOnlyStartAndCheckpointsCost) {
  EXPECT_EQ(
      Simulated(Four({})),
      (Times{{FleetTime::kTraining, 100}, {FleetTime::kCheckpoint, 10}, {FleetTime::kStart, 5}}));
}

TEST(Fleet, ADeadProcessCostsARestartAndTheStepsSinceTheCheckpoint) {
  EXPECT_EQ(Simulated(Four({kProcess})), (Times{{FleetTime::kTraining, 92},
                                                {FleetTime::kCheckpoint, 9},
                                                {FleetTime::kAgain, 4},
                                                {FleetTime::kRestart, 5},
                                                {FleetTime::kStart, 5}}));
}

TEST(Fleet, ALostMachineCostsItsLeaseTooAndASpareTakesItsPlace) {
  FleetPlan plan = Four({kMachine});
  plan.spares = 1;
  // Its last heartbeat was at 30 s.
  EXPECT_EQ(Simulated(plan), (Times{{FleetTime::kTraining, 86},
                                    {FleetTime::kCheckpoint, 8},
                                    {FleetTime::kAgain, 4},
                                    {FleetTime::kDetection, 7},
                                    {FleetTime::kRestart, 5},
                                    {FleetTime::kStart, 5}}));
}

TEST(Fleet, WithoutASpareTheRunWaitsForTheRepair) {
  FleetPlan plan = Four({kMachine});
  plan.repair = seconds(20);
  const FleetRun run = SimulateFleet(plan, 1);
  EXPECT_EQ(TimesOf(plan, run), (Times{{FleetTime::kTraining, 74},
                                       {FleetTime::kCheckpoint, 7},
                                       {FleetTime::kAgain, 4},
                                       {FleetTime::kDetection, 7},
                                       {FleetTime::kRestart, 5},
                                       {FleetTime::kNoMachine, 13},
                                       {FleetTime::kStart, 5}}));
  EXPECT_NEAR(run.longest_wait, 13, 1e-6);
  EXPECT_EQ(run.restarts, 1);

  plan.join_timeout = seconds(10);
  EXPECT_THAT(SimulateFleet(plan, 1).why_ended, HasSubstr("--join-timeout"));
  EXPECT_NEAR(SimulateFleet(plan, 1).ended_after, 48, 1e-6);
}

TEST(Fleet, WorkersThatAreKeptLoseNoSteps) {
  FleetPlan plan = Four({kProcess});
  plan.in_place = true;
  EXPECT_EQ(Simulated(plan), (Times{{FleetTime::kTraining, 100},
                                    {FleetTime::kCheckpoint, 9},
                                    {FleetTime::kRestart, 1},
                                    {FleetTime::kStart, 5}}));
}

TEST(Fleet, ARunThatMayShrinkGoesOnAfterTheJoinWindow) {
  FleetPlan plan = Four({kMachine});
  plan.nodes_min = 3;
  plan.last_call = seconds(2);
  EXPECT_EQ(Simulated(plan), (Times{{FleetTime::kTraining, 68},
                                    {FleetTime::kCheckpoint, 6.5},
                                    {FleetTime::kAgain, 4},
                                    {FleetTime::kDetection, 7},
                                    {FleetTime::kRestart, 2 + 3.75},
                                    {FleetTime::kNoMachine, 18.75},
                                    {FleetTime::kStart, 5}}));
}

TEST(Fleet, ARunThatIsKeptShrinksAtOnceAndGrowsWhenTheMachineIsBack) {
  FleetPlan plan = Four({kMachine});
  plan.in_place = true;
  plan.nodes_min = 3;
  plan.repair = seconds(20);
  // It goes on with three after 38 + 1 s; the fourth is back at 51 s and ready at 56 s.
  const Times times = Simulated(plan);
  EXPECT_EQ(times.at(FleetTime::kNoMachine), (56 - 38) / 4.0);
  EXPECT_EQ(times.at(FleetTime::kRestart), 0.75 + 1);
  EXPECT_EQ(times.count(FleetTime::kAgain), 0u);
}

TEST(Fleet, ARunEndsWhenItsRestartsAreUsedUp) {
  FleetPlan plan = Four({kProcess, {seconds(61), true}});
  plan.restarts_max = 1;
  const FleetRun run = SimulateFleet(plan, 1);
  EXPECT_THAT(run.why_ended, HasSubstr("--max-restarts"));
  EXPECT_NEAR(run.ended_after, 61, 1e-6);
  EXPECT_EQ(TimesOf(plan, run).at(FleetTime::kEnded), 54);
  plan.policy.reset = seconds(20);
  EXPECT_EQ(SimulateFleet(plan, 1).why_ended, "");
}

double MeanGoodput(const FleetPlan& plan) {
  double sum = 0;
  for (std::uint64_t seed = 0; seed < 10; ++seed) sum += SimulateFleet(plan, seed).Goodput() / 10;
  return sum;
}

TEST(Fleet, TheIntervalOfYoungAndDalyIsNearTheBestOne) {
  FleetPlan plan = Four({});
  plan.duration = hours(240);
  plan.process_mtbf = hours(1);
  plan.checkpoint_cost = seconds(20);
  plan.checkpoint_every = BestCheckpointInterval(plan);
  EXPECT_EQ(plan.checkpoint_every, seconds(379));
  const double best = MeanGoodput(plan);
  EXPECT_NEAR(best, 0.896, 0.01);  // 1 - sqrt(2 x 20 / 3600), and a restart of 5 s an hour
  for (const double factor : {0.25, 0.5, 0.75, 1.5, 2.0, 4.0}) {
    FleetPlan other = plan;
    other.checkpoint_every =
        milliseconds(static_cast<int>(factor * static_cast<double>(plan.checkpoint_every.count())));
    EXPECT_LT(MeanGoodput(other), best + 0.002) << factor;
    if (factor < 0.4 || factor > 3) {
      EXPECT_LT(MeanGoodput(other), best - 0.03) << factor;
    }
  }
}

TEST(Fleet, MachinesFailAsOftenAsIsSaid) {
  FleetPlan plan = Four({});
  plan.nodes = 50;
  plan.spares = 5;
  plan.duration = hours(1000);
  plan.node_mtbf = hours(100);
  double failures = 0;
  for (std::uint64_t seed = 0; seed < 4; ++seed) failures += SimulateFleet(plan, seed).failures / 4;
  EXPECT_NEAR(failures, 55 * 10, 40);
}

absl::StatusOr<std::variant<ShowText, SimulateRequest>> Parsed(const std::string& line) {
  return ParseSimulateRequest(absl::StrSplit(line, ' '));
}

TEST(SimulateOptions, AnMtbfIsThatOfAllMachines) {
  const auto parsed = Parsed("--nodes 1000 --mtbf 4h --duration 2d --failures-at 5s,12s:process");
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  const FleetPlan& plan = std::get<SimulateRequest>(*parsed).plan;
  EXPECT_EQ(plan.node_mtbf, hours(4000));
  EXPECT_EQ(plan.duration, hours(48));
  ASSERT_EQ(plan.failures.size(), 2u);
  EXPECT_TRUE(plan.failures[1].of_process && plan.failures[1].at == seconds(12));
  EXPECT_EQ(plan.checkpoint_every, BestCheckpointInterval(plan));
}

TEST(SimulateOptions, AWrongLineIsOneSentence) {
  const auto why = [](const std::string& line) {
    return std::string(Parsed(line).status().message());
  };
  EXPECT_THAT(why("--mtbf 4h"), HasSubstr("--nodes is missing"));
  EXPECT_THAT(why("--nodes 4"), HasSubstr("add --mtbf TIME or --failures-at"));
  EXPECT_THAT(why("--nodes 4 --mtbf 4h --node-mtbf 9h"), HasSubstr("give one of them"));
  EXPECT_THAT(why("--nodes 4 --mtbf soon"), HasSubstr("--mtbf 'soon' is not a number of seconds"));
  EXPECT_THAT(why("--nodes 4 --mtbf 4h --min-nodes 5"), HasSubstr("is above --nodes 4"));
  EXPECT_THAT(why("--nodes 4 --failures-at 5s,x"), HasSubstr("--failures-at 'x' is not"));
  EXPECT_THAT(why("--nodes 4 --mtbf 4h train"), HasSubstr("got 'train'"));
}

}  // namespace
}  // namespace ddprun
