// SPDX-License-Identifier: Apache-2.0
// What is in a data set, as tensors.
#pragma once

#include <torch/torch.h>

#include "worker/train/data/dataset.h"

namespace ddprun {

// All samples as a model sees them: N x channels x height x width.
inline at::Tensor Images(const SampleSet& set) {
  const SampleShape shape = set.shape();
  at::Tensor all = at::empty({set.size(), shape.channels, shape.height, shape.width});
  for (std::int64_t i = 0; i < set.size(); ++i) {
    set.Write(i, nullptr, /*channels_last=*/false, all[i].data_ptr<float>());
  }
  return all;
}

inline at::Tensor Labels(const SampleSet& set) {
  at::Tensor all = at::empty({set.size()}, at::kLong);
  for (std::int64_t i = 0; i < set.size(); ++i) all[i] = set.Label(i);
  return all;
}

// One sample's values before they were normalised, 0 to 255.
inline at::Tensor Bytes(const Dataset& data, const SampleSet& set, std::int64_t index) {
  const SampleShape shape = set.shape();
  at::Tensor out = at::empty({shape.channels, shape.height, shape.width});
  set.Write(index, nullptr, /*channels_last=*/false, out.data_ptr<float>());
  const auto column = [&](const std::vector<float>& values) {
    return at::tensor(values).view({shape.channels, 1, 1});
  };
  return out.mul(column(data.std)).add(column(data.mean)).mul(255).round();
}

}  // namespace ddprun
