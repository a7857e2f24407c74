// SPDX-License-Identifier: Apache-2.0
#include "worker/training/kept_training.h"

#include <utility>

namespace ddprun {

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
  layout = parts->strategy->Layout();  // a checkpoint's, if it has begun with one
  buffers.emplace(*parts->model);
  parts->epoch_sums.Keep();
}

void KeptTraining::Commit() {
  buffers->Commit();
  parts->epoch_sums.Keep();
  if (layout.empty()) layout = parts->strategy->Layout();
}

void KeptTraining::Leave(const TrainingPlace& at) {
  left = std::chrono::steady_clock::now();
  if (parts) parts->Leave();
  if (!has_state) return;
  place = at;
  buffers->Restore();
  parts->epoch_sums.TakeBack();
}

}  // namespace ddprun
