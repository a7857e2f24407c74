// SPDX-License-Identifier: Apache-2.0
#include "worker/train/training/kept_training.h"

#include <stdexcept>
#include <string>

#include "worker/train/step/run_ahead_limit.h"
#include "worker/train/training/state_view.h"

namespace ddprun {
namespace {

at::Device DeviceOf(const TrainingParts& parts) { return parts.parameters.front().second.device(); }

}  // namespace

QueuedSteps StepsAtEndOfWorld(at::Device device, int ranks, bool kept, bool another_world) {
  if (!kept || !device.is_cuda() || ranks == 1) return QueuedSteps::kComplete;
  return another_world ? QueuedSteps::kUndone : QueuedSteps::kLost;
}

void KeptTraining::Join(const Config& config, const Dataset& data,
                        const TrainingParts::Membership& membership) {
  const World& world = membership.world;
  // What one rank has of its own must not end with it, unless all end with the world.
  const bool is_kept = world.interrupt() != nullptr;
  queued_ = StepsAtEndOfWorld(world.device(), world.size(), is_kept, another_world);
  if (!parts) {
    parts = std::make_unique<TrainingParts>(config, data, membership);
    if (is_kept) parts->epoch_sums.Replicate(DeviceOf(*parts));
    return;
  }
  const at::Device device = DeviceOf(*parts);
  if (device != world.device())
    throw std::runtime_error("rank " + std::to_string(world.rank()) + " has its state on " +
                             device.str() + ", but the ranks agree on " + world.device().str() +
                             " for it now; it has to be started anew");
  parts->Join(membership);
}

void KeptTraining::Accept(const TrainingPlace& at) {
  place = at;
  has_state = true;
  layout = parts->strategy->Layout();  // a checkpoint's, if it has begun with one
  buffers.emplace(*parts->model);
  recent.reset();
  if (queued_ == QueuedSteps::kUndone)
    recent.emplace(StateView(*parts).UpTo(HeldBy::kItselfOnly),
                   RunAheadLimit::kStepsAheadIfKept + 1);
}

void KeptTraining::BeginStep(const TrainingPlace& at) {
  if (recent) recent->Keep({.place = at, .counts = counter.Now()});
}

void KeptTraining::Send(World& world) {
  ShmNotes* notes = parts->strategy->notes();
  if (notes != nullptr) notes->BeginStep();
  parts->epoch_sums.Send(world, notes);
  buffers->Send(world, notes, MetricSums::NoteBytes());
}

void KeptTraining::Await(const World& world) {
  const ShmNotes* notes = parts->strategy->notes();
  buffers->Await(world, notes, MetricSums::NoteBytes());
  parts->epoch_sums.Await(world, notes);
}

void KeptTraining::Commit() {
  buffers->Commit();
  if (layout.empty()) layout = parts->strategy->Layout();
}

void KeptTraining::Leave(const TrainingPlace& at, std::int64_t ended) {
  left = std::chrono::steady_clock::now();
  if (parts) parts->Leave();
  if (queued_ == QueuedSteps::kLost) has_state = false;
  if (!has_state) return;
  place = at;
  buffers->Restore();
  parts->epoch_sums.Discard();
  if (recent) GoBackTo(ended);
}

void KeptTraining::GoBackTo(std::int64_t ended) {
  const std::optional<RecentStates::Host> then = recent->GoBackTo(ended);
  recent.reset();  // copies of this world's steps
  if (!then) return;
  place = then->place;
  counter.GoBackTo(then->counts);
  parts->WeightsChanged();
}

}  // namespace ddprun
