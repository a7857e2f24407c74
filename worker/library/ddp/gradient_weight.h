// SPDX-License-Identifier: Apache-2.0
// Multiplies the gradients of some parameters while it lives. The loss stays as it
// is, so a program has nothing to multiply and nothing to forget.
#pragma once

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>

#include <utility>
#include <vector>

namespace ddprun {

class GradientWeight {
 public:
  GradientWeight(const std::vector<at::Tensor>& parameters, double weight) {
    for (const at::Tensor& parameter : parameters) {
      if (!parameter.requires_grad()) continue;
      const unsigned hook = parameter.register_hook(
          [weight](const at::Tensor& gradient) { return gradient * weight; });
      hooks_.emplace_back(parameter, hook);
    }
  }
  ~GradientWeight() {
    for (const auto& [parameter, hook] : hooks_) parameter.remove_hook(hook);
  }
  GradientWeight(const GradientWeight&) = delete;
  GradientWeight& operator=(const GradientWeight&) = delete;

 private:
  std::vector<std::pair<at::Tensor, unsigned>> hooks_;
};

}  // namespace ddprun
