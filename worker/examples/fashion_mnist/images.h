// SPDX-License-Identifier: Apache-2.0
// Images and labels in memory, a batch at a time.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

// Fashion-MNIST's 28x28 pixels with two black ones around, in three equal channels, normalised.
class Images : public torch::data::datasets::BatchDataset<Images, torch::data::Example<>> {
 public:
  explicit Images(const std::string& folder) {
    const torch::data::datasets::MNIST files(folder);
    const at::Tensor padded = at::constant_pad_nd(files.images(), {2, 2, 2, 2});
    images_ = ((padded - 0.2860) / 0.3530)
                  .expand({-1, 3, -1, -1})
                  .contiguous(at::MemoryFormat::ChannelsLast);
    labels_ = files.targets();
  }

  torch::data::Example<> get_batch(torch::ArrayRef<std::size_t> indices) override {
    const std::vector<std::int64_t> rows(indices.begin(), indices.end());
    const at::Tensor index = at::tensor(rows, at::kLong);
    return {images_.index({index}), labels_.index_select(0, index)};
  }

  std::optional<std::size_t> size() const override {
    return static_cast<std::size_t>(labels_.size(0));
  }

 private:
  at::Tensor images_;  // N x 3 x 32 x 32
  at::Tensor labels_;  // N
};
