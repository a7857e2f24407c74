// SPDX-License-Identifier: Apache-2.0
// Module::parameters() and buffers() list the tensors of a module once for each place where it is
// registered (netresdeep's shared block is registered ten times). The reducer, the optimizer and
// checksums need each tensor once, as Python's parameters() gives them.
#pragma once

#include <torch/nn/module.h>

#include <unordered_set>
#include <vector>

namespace ddprun {

// Which tensors, whatever their values.
using TensorSet = std::unordered_set<const c10::TensorImpl*>;

inline TensorSet SetOf(const std::vector<at::Tensor>& tensors) {
  TensorSet set;
  for (const auto& tensor : tensors) set.insert(tensor.unsafeGetTensorImpl());
  return set;
}

inline std::vector<at::Tensor> Unique(const std::vector<at::Tensor>& tensors) {
  TensorSet seen;
  std::vector<at::Tensor> unique;
  for (const auto& tensor : tensors) {
    if (seen.insert(tensor.unsafeGetTensorImpl()).second) unique.push_back(tensor);
  }
  return unique;
}

inline std::vector<at::Tensor> UniqueParameters(const torch::nn::Module& module) {
  return Unique(module.parameters());
}
inline std::vector<at::Tensor> UniqueBuffers(const torch::nn::Module& module) {
  return Unique(module.buffers());
}
// Parameters, then buffers.
inline std::vector<at::Tensor> UniqueState(const torch::nn::Module& module) {
  std::vector<at::Tensor> tensors = module.parameters();
  for (const at::Tensor& buffer : module.buffers()) tensors.push_back(buffer);
  return Unique(tensors);
}

}  // namespace ddprun
