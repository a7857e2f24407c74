// SPDX-License-Identifier: Apache-2.0
#include "worker/train/step/step_recorder.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <chrono>
#include <memory>

#include "tests/testing/lone_world.h"
#include "tests/testing/small_training.h"

namespace ddprun {
namespace {

class StepRecorderTest : public testing::Test {
 protected:
  StepRecorder MakeRecorder(World& world) {
    return StepRecorder(world, [this] { return std::make_unique<CountedGraph>(graphs_); });
  }

  // A step whose loss says how often it was made.
  StepOutcome Step() { return {.loss = at::full({}, ++made_), .gradient_norm = {}}; }

  void Record(StepRecorder& recorder) {
    recorder.Record([this] { return Step(); });
  }

  // As the first steps, operation by operation.
  static void Queue(StepRecorder& recorder, std::int64_t steps) {
    for (std::int64_t i = 0; i < steps; ++i) {
      EXPECT_FALSE(recorder.IsReplayed()) << "after " << i << " steps";
      recorder.CountQueued();
      recorder.EndStep(i + 1);
    }
  }

  const std::shared_ptr<Graphs> graphs_ = std::make_shared<Graphs>();
  int made_ = 0;
};

TEST_F(StepRecorderTest, RecordsOnceWhatItReplays) {
  LoneWorld world(at::kCPU);
  StepRecorder recorder = MakeRecorder(world);
  Queue(recorder, StepRecorder::kWarmUpAlone);
  EXPECT_TRUE(recorder.IsReplayed());
  EXPECT_FALSE(recorder.is_graph());
  EXPECT_FALSE(recorder.is_warm());
  Record(recorder);
  EXPECT_TRUE(recorder.is_graph());
  EXPECT_TRUE(recorder.is_warm());
  const double first = recorder.Replay().loss.item<double>();
  EXPECT_EQ(recorder.Replay().loss.item<double>(), first + 1) << "the outcome is not the replay's";
  EXPECT_EQ(graphs_->alive(), 1);
}

TEST_F(StepRecorderTest, EachForwardHasItsOwnRecording) {
  LoneWorld world(at::kCPU);
  StepRecorder recorder = MakeRecorder(world);
  Queue(recorder, StepRecorder::kWarmUpAlone);
  Record(recorder);
  recorder.UseForward(1);
  EXPECT_FALSE(recorder.is_graph());
  Queue(recorder, StepRecorder::kWarmUpAgain);
  EXPECT_TRUE(recorder.IsReplayed());
  Record(recorder);
  EXPECT_EQ(graphs_->alive(), 2);
  recorder.UseForward(0);
  EXPECT_TRUE(recorder.is_graph()) << "the first recording has stayed";
}

TEST_F(StepRecorderTest, WithoutGraphsIsWarmAfterTheFirstStep) {
  LoneWorld world(at::kCPU);
  StepRecorder recorder(world);
  EXPECT_FALSE(recorder.is_warm());
  Queue(recorder, StepRecorder::kWarmUpOfSeveral + 1);
  EXPECT_TRUE(recorder.is_warm());
  EXPECT_FALSE(recorder.IsReplayed());
}

// NCCL ends no collectives as long as there is a graph of them.
TEST_F(StepRecorderTest, DropsItsRecordingsWhenTheRoundEnds) {
  LoneWorld world(at::kCPU, nullptr, World::kDefaultTimeout, std::make_shared<Interrupt>());
  StepRecorder recorder = MakeRecorder(world);
  Queue(recorder, StepRecorder::kWarmUpAlone);
  Record(recorder);
  world.interrupt()->Trigger();
  EXPECT_TRUE(graphs_->AwaitNone(std::chrono::seconds(60)));
  EXPECT_THROW(recorder.Replay(), RoundOver);
}

}  // namespace
}  // namespace ddprun
