// SPDX-License-Identifier: Apache-2.0
#include "worker/training/kept_training.h"

#include <ATen/Context.h>

#include <mutex>
#include <utility>

namespace ddprun {
namespace {

// Of dropout on a CPU.
at::Generator CpuGenerator() { return at::globalContext().defaultGenerator(at::kCPU); }

at::Tensor CpuRandomState() {
  at::Generator generator = CpuGenerator();
  const std::lock_guard lock(generator.mutex());
  return generator.get_state();
}

void SetCpuRandomState(const at::Tensor& state) {
  at::Generator generator = CpuGenerator();
  const std::lock_guard lock(generator.mutex());
  generator.set_state(state);
}

}  // namespace

void KeptTraining::Join(const Config& config, const Dataset& data,
                        TrainingParts::Membership membership) {
  if (parts) {
    parts->Join(std::move(membership));
    return;
  }
  parts = std::make_unique<TrainingParts>(config, data, std::move(membership));
}

void KeptTraining::Accept(const TrainingPlace& at) {
  place = at;
  has_state = true;
  buffers.emplace(*parts->model);
  parts->epoch_sums.Keep();
  random = CpuRandomState();
}

void KeptTraining::Commit() {
  buffers->Commit();
  parts->epoch_sums.Keep();
  random = CpuRandomState();
  if (layout.empty()) layout = parts->strategy->Layout();
}

void KeptTraining::Leave(const TrainingPlace& at) {
  left = std::chrono::steady_clock::now();
  if (parts) parts->Leave();
  if (!has_state) return;
  place = at;
  buffers->Restore();
  parts->epoch_sums.TakeBack();
  SetCpuRandomState(random);
}

}  // namespace ddprun
