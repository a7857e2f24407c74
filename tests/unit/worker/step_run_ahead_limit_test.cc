// SPDX-License-Identifier: Apache-2.0
#include "worker/train/step/run_ahead_limit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ddprun {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

// A device that ends as many of its steps as it is told to.
class Device {
 public:
  std::unique_ptr<StreamMark> MakeMark() { return std::make_unique<Mark>(*this, ++queued_); }

  int queued_ = 0;
  int ended_ = 0;
  int looks_ = 0;
  int ends_at_look_ = 0;  // ends all that is queued at this one

 private:
  class Mark : public StreamMark {
   public:
    Mark(Device& device, int step) : device_(device), step_(step) {}
    bool Passed() const override {
      if (++device_.looks_ == device_.ends_at_look_) device_.ended_ = device_.queued_;
      return step_ <= device_.ended_;
    }

   private:
    Device& device_;
    const int step_;
  };
};

constexpr int kAhead = static_cast<int>(RunAheadLimit::kStepsAhead);

TEST(RunAheadLimit, DoesNotAskBeforeTheHostIsFarAhead) {
  Device device;
  GraphSteps steps;
  RunAheadLimit run_ahead_limit([&] { return device.MakeMark(); }, steps, {.who = "rank 1"});
  for (int i = 1; i <= kAhead; ++i) run_ahead_limit.EndStep(i, milliseconds(0));
  EXPECT_EQ(device.looks_, 0);
}

TEST(RunAheadLimit, WaitsForTheOldestStepOnly) {
  Device device;
  GraphSteps steps;
  RunAheadLimit run_ahead_limit([&] { return device.MakeMark(); }, steps, {.who = "rank 1"});
  for (int i = 1; i <= kAhead; ++i) run_ahead_limit.EndStep(i, milliseconds(60'000));
  device.ended_ = 1;
  run_ahead_limit.EndStep(kAhead + 1, milliseconds(60'000));
  EXPECT_EQ(device.looks_, 1);
  device.ends_at_look_ = 5;
  run_ahead_limit.EndStep(kAhead + 2, milliseconds(60'000));
  EXPECT_EQ(device.looks_, 5);
  EXPECT_EQ(device.ended_, device.queued_);
}

TEST(RunAheadLimit, GivesUpOnAStepThatDoesNotEnd) {
  Device device;
  GraphSteps steps;
  RunAheadLimit run_ahead_limit([&] { return device.MakeMark(); }, steps, {.who = "rank 1"});
  for (int i = 1; i <= kAhead; ++i) run_ahead_limit.EndStep(i, milliseconds(5));
  try {
    run_ahead_limit.EndStep(kAhead + 1, milliseconds(5));
    ADD_FAILURE() << "a device that hangs was waited for";
  } catch (const StepHangs& error) {
    EXPECT_THAT(error.what(), HasSubstr("rank 1: a step on the GPU has not ended within 0 s"));
    EXPECT_THAT(error.what(), HasSubstr("--collective-timeout"));
  }
}

TEST(RunAheadLimit, WaitsForAllBeforeANumberIsRead) {
  Device device;
  GraphSteps steps;
  RunAheadLimit run_ahead_limit([&] { return device.MakeMark(); }, steps, {.who = "rank 1"});
  for (int i = 1; i <= 3; ++i) run_ahead_limit.EndStep(i, milliseconds(60'000));
  device.ends_at_look_ = 3;
  run_ahead_limit.AwaitAll(milliseconds(60'000));
  EXPECT_EQ(steps.queued(), 0u);
  run_ahead_limit.EndStep(4, milliseconds(5));
  EXPECT_THROW(run_ahead_limit.AwaitAll(milliseconds(5)), StepHangs);
}

TEST(RunAheadLimit, EndsItsWaitWhenThereIsNoUseInIt) {
  Device device;
  GraphSteps steps;
  int checks = 0;
  RunAheadLimit run_ahead_limit([&] { return device.MakeMark(); }, steps,
                                {.who = "rank 1", .steps_ahead = 2, .check = [&checks] {
                                   if (++checks == 3) throw RoundOver();
                                 }});
  for (int i = 1; i <= 2; ++i) run_ahead_limit.EndStep(i, milliseconds(60'000));
  EXPECT_THROW(run_ahead_limit.EndStep(3, milliseconds(60'000)), RoundOver);
  EXPECT_EQ(checks, 3);
}

// Else the numbers that are read next would be those of an aborted collective.
TEST(RunAheadLimit, ChecksAlsoWhereItNeedNotWait) {
  Device device;
  GraphSteps steps;
  RunAheadLimit run_ahead_limit([&] { return device.MakeMark(); }, steps,
                                {.who = "rank 1", .check = [] { throw RoundOver(); }});
  EXPECT_THROW(run_ahead_limit.AwaitAll(milliseconds(60'000)), RoundOver);
}

// What a device ends when its collectives are aborted is of no use.
TEST(GraphSteps, CountNoStepThatEndsWhenTheyAreClosed) {
  Device device;
  GraphSteps steps;
  EXPECT_EQ(steps.ended(), 0);
  for (int i = 41; i <= 44; ++i) steps.Add(i, device.MakeMark());
  device.ended_ = 2;
  EXPECT_EQ(steps.ended(), 0) << "nobody has asked";
  steps.Close();
  EXPECT_EQ(steps.ended(), 42);
  device.ended_ = 4;
  EXPECT_FALSE(steps.OldestEnded());
  steps.Place();
  EXPECT_EQ(steps.ended(), 42);
}

// The words of a verdict (rendezvous/values/collectives.h).
TEST(GraphSteps, SayInWhichStepTheDeviceIs) {
  Device device;
  GraphSteps steps;
  EXPECT_EQ(steps.Place(), CollectivePlace{});
  for (int i = 41; i <= 43; ++i) steps.Add(i, device.MakeMark());
  const auto step = [](std::int64_t number) {
    return Collective{.group = kGraphStep, .number = number, .name = kGraphStep};
  };
  EXPECT_EQ(steps.Place(), (CollectivePlace{step(41), {}}));
  device.ended_ = 2;
  EXPECT_EQ(steps.Place(), (CollectivePlace{step(43), {step(42)}}));
  device.ended_ = 3;
  EXPECT_EQ(steps.Place(), (CollectivePlace{std::nullopt, {step(43)}}));
  EXPECT_EQ(steps.queued(), 0u);
}

}  // namespace
}  // namespace ddprun
