// SPDX-License-Identifier: Apache-2.0
// Numbers that all ranks of a test can make for each other.
#pragma once

#include <torch/torch.h>

namespace ddprun {

inline at::Generator GeneratorOf(int seed) {
  return at::detail::createCPUGenerator(static_cast<uint64_t>(seed));
}

inline void Fill(torch::nn::Module& module, int seed) {
  const torch::NoGradGuard no_grad;
  auto generator = GeneratorOf(seed);
  for (at::Tensor& parameter : module.parameters()) parameter.normal_(0, 0.3, generator);
}

}  // namespace ddprun
