// SPDX-License-Identifier: Apache-2.0
// Properties of the schedules over all small pipelines: nothing is used before it is there, nobody
// waits for ever, and how many micro-batches a stage holds at once.
#include "worker/train/pipeline/actions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <optional>

namespace ddprun {
namespace {

using Kind = Action::Kind;
using testing::ElementsAre;

constexpr PipelineSchedule kBoth[] = {PipelineSchedule::kGpipe,
                                      PipelineSchedule::kOneForwardOneBackward};
constexpr int kStagesMax = 7;
constexpr int kMicroBatchesMax = 17;

using Pipeline = std::vector<std::vector<Action>>;  // by stage

Pipeline MakePipeline(PipelineSchedule schedule, int stages, int micro_batches) {
  Pipeline pipeline;
  for (int stage = 0; stage < stages; ++stage)
    pipeline.push_back(TrainingActions(schedule, stage, stages, micro_batches));
  return pipeline;
}

void ForEachPipeline(const std::function<void(PipelineSchedule, int stages, int micro_batches,
                                              const Pipeline&)>& check) {
  for (const PipelineSchedule schedule : kBoth) {
    for (int stages = 1; stages <= kStagesMax; ++stages) {
      for (int micro_batches = 1; micro_batches <= kMicroBatchesMax; ++micro_batches) {
        SCOPED_TRACE(testing::Message()
                     << (schedule == PipelineSchedule::kGpipe ? "gpipe" : "1f1b") << ", " << stages
                     << " stages, " << micro_batches << " micro-batches");
        check(schedule, stages, micro_batches, MakePipeline(schedule, stages, micro_batches));
      }
    }
  }
}

std::vector<int> MicroBatchesOf(const std::vector<Action>& actions, Kind kind) {
  std::vector<int> found;
  for (const Action& action : actions) {
    if (action.kind == kind) found.push_back(action.micro_batch);
  }
  return found;
}

std::ptrdiff_t PlaceOf(const std::vector<Action>& actions, Action action) {
  return std::find(actions.begin(), actions.end(), action) - actions.begin();
}

TEST(PipelineActions, EveryMicroBatchHasEachOfAStagesActionsOnceInAscendingOrder) {
  ForEachPipeline([](PipelineSchedule, int stages, int micro_batches, const Pipeline& pipeline) {
    std::vector<int> all(static_cast<std::size_t>(micro_batches));
    std::iota(all.begin(), all.end(), 0);
    for (int stage = 0; stage < stages; ++stage) {
      const auto& actions = pipeline[static_cast<std::size_t>(stage)];
      const auto expected = [&](bool there) { return there ? all : std::vector<int>{}; };
      const bool first = stage == 0;
      const bool last = stage == stages - 1;
      EXPECT_EQ(MicroBatchesOf(actions, Kind::kForward), all);
      EXPECT_EQ(MicroBatchesOf(actions, Kind::kBackward), all);
      EXPECT_EQ(MicroBatchesOf(actions, Kind::kReceiveActivation), expected(!first));
      EXPECT_EQ(MicroBatchesOf(actions, Kind::kSendGradient), expected(!first));
      EXPECT_EQ(MicroBatchesOf(actions, Kind::kSendActivation), expected(!last));
      EXPECT_EQ(MicroBatchesOf(actions, Kind::kReceiveGradient), expected(!last));
    }
  });
}

TEST(PipelineActions, NothingIsUsedBeforeItIsThere) {
  ForEachPipeline([](PipelineSchedule, int stages, int micro_batches, const Pipeline& pipeline) {
    for (int stage = 0; stage < stages; ++stage) {
      const auto& actions = pipeline[static_cast<std::size_t>(stage)];
      for (int i = 0; i < micro_batches; ++i) {
        const auto at = [&](Kind kind) { return PlaceOf(actions, {kind, i}); };
        EXPECT_LT(at(Kind::kForward), at(Kind::kBackward));
        if (stage > 0) {
          EXPECT_LT(at(Kind::kReceiveActivation), at(Kind::kForward));
          EXPECT_LT(at(Kind::kBackward), at(Kind::kSendGradient));
        }
        if (stage < stages - 1) {
          EXPECT_LT(at(Kind::kForward), at(Kind::kSendActivation));
          EXPECT_LT(at(Kind::kReceiveGradient), at(Kind::kBackward));
        }
      }
    }
  });
}

// The action with which the neighbour takes what this one sends; nothing for others.
struct Taking {
  int stage;
  Action action;
};
std::optional<Taking> TakingOf(int stage, const Action& action) {
  if (action.kind == Kind::kSendActivation)
    return Taking{stage + 1, {Kind::kReceiveActivation, action.micro_batch}};
  if (action.kind == Kind::kSendGradient)
    return Taking{stage - 1, {Kind::kReceiveGradient, action.micro_batch}};
  return std::nullopt;
}

bool IsReceive(const Action& action) {
  return action.kind == Kind::kReceiveActivation || action.kind == Kind::kReceiveGradient;
}

// Runs the stages where a send ends only when the neighbour is at the receive for it, and the other
// way round. Gives how many actions were left when nobody could go on.
std::size_t ActionsLeftWithBlockingSends(const Pipeline& pipeline) {
  std::vector<std::size_t> next(pipeline.size(), 0);
  const auto current = [&](int stage) -> std::optional<Action> {
    const auto s = static_cast<std::size_t>(stage);
    if (next[s] == pipeline[s].size()) return std::nullopt;
    return pipeline[s][next[s]];
  };
  for (bool moved = true; moved;) {
    moved = false;
    for (int stage = 0; stage < static_cast<int>(pipeline.size()); ++stage) {
      const auto action = current(stage);
      if (!action || IsReceive(*action)) continue;  // a receive is ended by its send
      if (const auto taking = TakingOf(stage, *action)) {
        if (current(taking->stage) != taking->action) continue;
        ++next[static_cast<std::size_t>(taking->stage)];
      }
      ++next[static_cast<std::size_t>(stage)];
      moved = true;
    }
  }
  std::size_t left = 0;
  for (std::size_t s = 0; s < pipeline.size(); ++s) left += pipeline[s].size() - next[s];
  return left;
}

TEST(PipelineActions, NobodyWaitsForEverEvenWhereASendWaitsForItsReceive) {
  ForEachPipeline([](PipelineSchedule, int, int, const Pipeline& pipeline) {
    EXPECT_EQ(ActionsLeftWithBlockingSends(pipeline), 0u);
  });
}

TEST(PipelineActions, TheSimulationSeesADeadlock) {
  // The textbook's order of 1F1B, with the gradient sent before the next activation is asked for.
  Pipeline pipeline = MakePipeline(PipelineSchedule::kOneForwardOneBackward, 2, 3);
  auto& last = pipeline[1];
  const auto receive = last.begin() + PlaceOf(last, {Kind::kReceiveActivation, 1});
  ASSERT_EQ(*(receive + 1), (Action{Kind::kSendGradient, 0}));
  std::iter_swap(receive, receive + 1);
  EXPECT_GT(ActionsLeftWithBlockingSends(pipeline), 0u);
}

int MostHeldAtOnce(const std::vector<Action>& actions) {
  int held = 0;
  int most = 0;
  for (const Action& action : actions) {
    if (action.kind == Kind::kForward) most = std::max(most, ++held);
    if (action.kind == Kind::kBackward) --held;
  }
  return most;
}

TEST(PipelineActions, OneForwardOneBackwardHoldsAtMostOneMicroBatchForEachStageThatFollows) {
  ForEachPipeline(
      [](PipelineSchedule schedule, int stages, int micro_batches, const Pipeline& pipeline) {
        for (int stage = 0; stage < stages; ++stage) {
          const int limit = schedule == PipelineSchedule::kGpipe ? micro_batches : stages - stage;
          EXPECT_EQ(MostHeldAtOnce(pipeline[static_cast<std::size_t>(stage)]),
                    std::min(limit, micro_batches));
        }
      });
}

TEST(PipelineActions, EvaluationIsForwardOnly) {
  EXPECT_THAT(EvaluationActions(1, 3, 2),
              ElementsAre(Action{Kind::kReceiveActivation, 0}, Action{Kind::kForward, 0},
                          Action{Kind::kSendActivation, 0}, Action{Kind::kReceiveActivation, 1},
                          Action{Kind::kForward, 1}, Action{Kind::kSendActivation, 1}));
}

TEST(MicroBatchSizes, DifferByOneAtMostAndAreNeverEmpty) {
  EXPECT_THAT(MicroBatchSizes(16, 4), ElementsAre(4, 4, 4, 4));
  EXPECT_THAT(MicroBatchSizes(10, 4), ElementsAre(3, 3, 2, 2));
  EXPECT_THAT(MicroBatchSizes(3, 4), ElementsAre(1, 1, 1));
  EXPECT_THAT(MicroBatchSizes(7, 1), ElementsAre(7));
}

}  // namespace
}  // namespace ddprun
