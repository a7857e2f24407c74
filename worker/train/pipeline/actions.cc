// SPDX-License-Identifier: Apache-2.0
#include "worker/train/pipeline/actions.h"

#include <algorithm>

namespace ddprun {
namespace {

// The actions of one stage; what has to do with a neighbour that is not there is left out.
class StageActions {
 public:
  StageActions(int stage, int stages) : first_(stage == 0), last_(stage == stages - 1) {}

  void ReceiveActivation(int micro_batch) {
    if (!first_) Add(Action::Kind::kReceiveActivation, micro_batch);
  }
  void Forward(int micro_batch) {
    Add(Action::Kind::kForward, micro_batch);
    if (!last_) Add(Action::Kind::kSendActivation, micro_batch);
  }
  void Backward(int micro_batch) {
    if (!last_) Add(Action::Kind::kReceiveGradient, micro_batch);
    Add(Action::Kind::kBackward, micro_batch);
  }
  void SendGradient(int micro_batch) {
    if (!first_) Add(Action::Kind::kSendGradient, micro_batch);
  }

  std::vector<Action> Take() { return std::move(actions_); }

 private:
  void Add(Action::Kind kind, int micro_batch) { actions_.push_back({kind, micro_batch}); }

  const bool first_;
  const bool last_;
  std::vector<Action> actions_;
};

std::vector<Action> GpipeActions(int stage, int stages, int micro_batches) {
  StageActions actions(stage, stages);
  for (int i = 0; i < micro_batches; ++i) {
    actions.ReceiveActivation(i);
    actions.Forward(i);
  }
  for (int i = 0; i < micro_batches; ++i) {
    actions.Backward(i);
    actions.SendGradient(i);
  }
  return actions.Take();
}

std::vector<Action> OneForwardOneBackwardActions(int stage, int stages, int micro_batches) {
  StageActions actions(stage, stages);
  // The micro-batches that are between this stage and the last one, in either direction.
  const int ahead = std::min(stages - 1 - stage, micro_batches);
  for (int i = 0; i < ahead; ++i) {
    actions.ReceiveActivation(i);
    actions.Forward(i);
  }
  if (ahead < micro_batches) actions.ReceiveActivation(ahead);
  for (int i = ahead; i < micro_batches; ++i) {
    actions.Forward(i);
    actions.Backward(i - ahead);
    // Before the gradient goes: the stage before sends its next activation before it waits for
    // that gradient.
    if (i + 1 < micro_batches) actions.ReceiveActivation(i + 1);
    actions.SendGradient(i - ahead);
  }
  for (int i = micro_batches - ahead; i < micro_batches; ++i) {
    actions.Backward(i);
    actions.SendGradient(i);
  }
  return actions.Take();
}

}  // namespace

std::vector<Action> TrainingActions(PipelineSchedule schedule, int stage, int stages,
                                    int micro_batches) {
  switch (schedule) {
    case PipelineSchedule::kGpipe:
      return GpipeActions(stage, stages, micro_batches);
    case PipelineSchedule::kOneForwardOneBackward:
      return OneForwardOneBackwardActions(stage, stages, micro_batches);
  }
  return {};
}

std::vector<Action> EvaluationActions(int stage, int stages, int micro_batches) {
  StageActions actions(stage, stages);
  for (int i = 0; i < micro_batches; ++i) {
    actions.ReceiveActivation(i);
    actions.Forward(i);
  }
  return actions.Take();
}

std::vector<std::int64_t> MicroBatchSizes(std::int64_t samples, int micro_batches) {
  const std::int64_t count = std::min<std::int64_t>(samples, micro_batches);
  std::vector<std::int64_t> sizes;
  for (std::int64_t i = 0; i < count; ++i)
    sizes.push_back(samples / count + (i < samples % count ? 1 : 0));
  return sizes;
}

}  // namespace ddprun
