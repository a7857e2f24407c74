// SPDX-License-Identifier: Apache-2.0
// A network and a data set for the tests of libddprun.
#pragma once

#include <torch/torch.h>

#include <algorithm>
#include <cstdint>
#include <optional>

#include "tests/integration/worker/seeded.h"

namespace ddprun {

inline at::Tensor Random(at::IntArrayRef shape, std::uint64_t seed) {
  return at::randn(shape, GeneratorOf(static_cast<int>(seed)), at::TensorOptions());
}

inline torch::nn::Sequential Net() {
  torch::manual_seed(1);
  return torch::nn::Sequential(torch::nn::Linear(6, 8), torch::nn::ReLU(), torch::nn::Linear(8, 3));
}

inline double LargestDifference(const torch::nn::Module& a, const torch::nn::Module& b) {
  double largest = 0;
  const auto ours = a.parameters(), theirs = b.parameters();
  for (std::size_t i = 0; i < ours.size(); ++i)
    largest = std::max(largest, (ours[i] - theirs[i]).abs().max().item<double>());
  return largest;
}

struct Numbers : torch::data::datasets::Dataset<Numbers> {
  torch::data::Example<> get(std::size_t index) override {
    return {at::full({1}, static_cast<double>(index)), at::zeros({1})};
  }
  std::optional<std::size_t> size() const override { return 15; }
};

}  // namespace ddprun
