// SPDX-License-Identifier: Apache-2.0
#include "worker/train/training/state_view.h"

#include "worker/library/base/unique_tensors.h"
#include "worker/library/files/state_dict.h"
#include "worker/train/export/model_file.h"

namespace ddprun {

StateView::StateView(const TrainingParts& parts) {
  const TensorSet held = SetOf(parts.strategy->State());
  const TensorSet buffers = SetOf(parts.model->buffers());
  for (const auto& [name, tensor] : StateDict(*parts.model)) {
    c10::TensorImpl* const one = tensor.unsafeGetTensorImpl();
    if (!held.contains(one)) continue;
    const HeldBy how = buffers.contains(one) ? HeldBy::kOneForAll : HeldBy::kAllAlike;
    tensors_.push_back({.name = "model/" + name, .tensor = tensor, .held = how});
  }
  for (const auto& [name, tensor] : parts.optimizer->State())
    tensors_.push_back({.name = "optimizer/" + name, .tensor = tensor});
  if (parts.average) {
    for (const auto& [name, tensor] : parts.average->State())
      tensors_.push_back({.name = std::string(kAveragePrefix) + name, .tensor = tensor});
  }
  for (const auto& [name, tensor] : parts.scaler.Tensors())
    tensors_.push_back({.name = "scaler/" + name, .tensor = tensor, .saved = false});
  if (!parts.epoch_sums.replicated()) return;
  tensors_.push_back({.name = "epoch_sums/of_all_ranks",
                      .tensor = parts.epoch_sums.of_all_ranks(),
                      .held = HeldBy::kOneForAll,
                      .saved = false});
  tensors_.push_back({.name = "epoch_sums/of_step",
                      .tensor = parts.epoch_sums.of_step(),
                      .held = HeldBy::kItselfOnly,
                      .saved = false});
}

NamedTensors StateView::Saved() const {
  NamedTensors saved;
  for (const StateTensor& one : tensors_) {
    if (one.saved) saved.emplace_back(one.name, one.tensor);
  }
  return saved;
}

std::vector<at::Tensor> StateView::UpTo(HeldBy last) const {
  std::vector<at::Tensor> tensors;
  for (const StateTensor& one : tensors_) {
    if (one.held <= last) tensors.push_back(one.tensor);
  }
  return Unique(tensors);
}

}  // namespace ddprun
