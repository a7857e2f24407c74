// SPDX-License-Identifier: Apache-2.0
// What of a training outlives a world of its ranks. When another rank ends, this one leaves the
// world, and goes on from its latest complete step in the next one: the step under way is discarded
// without a trace. On a CPU nothing but buffers and sums has changed by then; on a GPU, which is
// behind the host, the state of that step is copied back.
#pragma once

#include <chrono>
#include <memory>
#include <optional>

#include "worker/train/config/config.h"
#include "worker/train/data/dataset.h"
#include "worker/train/metrics/step_clock.h"
#include "worker/train/observers/summary.h"
#include "worker/train/replicas/recent_states.h"
#include "worker/train/replicas/tensor_copy.h"
#include "worker/train/step/buffer_mirror.h"
#include "worker/train/step/observer.h"
#include "worker/train/step/step_counter.h"
#include "worker/train/step/training_plan.h"
#include "worker/train/training/training_checkpoints.h"
#include "worker/train/training/training_parts.h"

namespace ddprun {

// What all ranks had alike at their latest check (--check-replicas): a copy to go back to.
struct AgreedState {
  TrainingPlace place;
  TensorCopy replicated;  // what is alike: parameters, optimizer state, scale, average
  // What each rank has of its own.
  TensorCopy buffers;
  at::Tensor epoch_sums;
  StepCounter::Counts counts;
};

// What becomes of steps that the host has queued on a device when their world ends.
enum class QueuedSteps {
  kComplete,  // none on a CPU; those of a rank alone, which wait for nobody; or the process ends
  kUndone,    // from copies
  kLost,      // with the state: nobody goes on from it
};
QueuedSteps StepsAtEndOfWorld(at::Device device, int ranks, bool kept, bool another_world);

struct KeptTraining {
  // The total time of the summary counts from `program_start`.
  explicit KeptTraining(std::chrono::steady_clock::time_point program_start)
      : start(program_start) {}
  KeptTraining(const KeptTraining&) = delete;
  KeptTraining& operator=(const KeptTraining&) = delete;

  // In the next world: parts that go on, or new ones. Throws std::runtime_error if they are on
  // another device than that world.
  void Join(const Config& config, const Dataset& data, const TrainingParts::Membership& membership);
  // Parts and buffers are those of `place`: training begins, or goes on.
  void Accept(const TrainingPlace& place);
  // The step after `place` is about to be made.
  void BeginStep(const TrainingPlace& place);
  // In it, after its last forward: what one rank has of its own begins to be sent to all. Before
  // the step changes anything else: it has come. All ranks must call both.
  void Send(World& world);
  void Await(const World& world);
  // A step is complete, or on a GPU queued: what it has changed stays.
  void Commit();
  // Leaves the world at `place`, with the parts as they were after the latest complete step. On a
  // GPU that is `ended`, the latest of this world whose end was seen, and the device has nothing of
  // this world to do any more. 0: none has ended.
  void Leave(const TrainingPlace& place, std::int64_t ended);

  const std::chrono::steady_clock::time_point start;

  // Set before Join(). False: no other world follows, and nothing is kept for undoing steps on a
  // GPU.
  bool another_world = true;
  bool has_state = false;  // place and parts are those of a training that has begun
  TrainingPlace place;
  BucketLayout layout;  // of the gradients, once a step is complete, here or before a checkpoint
  std::unique_ptr<TrainingParts> parts;
  std::optional<BufferMirror> buffers;
  std::optional<RecentStates> recent;  // of a training on a GPU, where another world may follow
  SavedSoFar saved;
  AgreedState agreed;
  std::int64_t damages = 0;  // found on this rank

  StepClock clock{start};
  StepCounter counter{clock};
  std::chrono::steady_clock::time_point left{};  // the latest world; {}: none yet
  Summary summary;

 private:
  QueuedSteps queued_ = QueuedSteps::kComplete;

  void GoBackTo(std::int64_t ended);
};

// Keeps what a step changes, so that it can be undone when `world` ends. Both must outlive it.
class KeepingObserver : public Observer {
 public:
  KeepingObserver(KeptTraining& kept, World& world) : kept_(kept), world_(world) {}

  void OnStepBegin(const TrainingState& state, const EpochPlan&, const StepBatches&) override {
    kept_.BeginStep(state.place);
  }
  void AfterForward() override { kept_.Send(world_); }
  void BeforeUpdate() override { kept_.Await(world_); }
  void OnStepEnd(const TrainingState&, const StepResult&) override { kept_.Commit(); }

 private:
  KeptTraining& kept_;
  World& world_;
};

}  // namespace ddprun
