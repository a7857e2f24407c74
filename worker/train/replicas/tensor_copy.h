// SPDX-License-Identifier: Apache-2.0
// A copy of tensors that can tell whether its own memory was damaged since.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace ddprun {

class TensorCopy {
 public:
  // The values that `tensors` have now, whose SumOf() is `sum`. Always the same tensors.
  void Keep(const std::vector<at::Tensor>& tensors, std::int64_t sum);
  // Whether it has values, and they are those with that sum.
  bool IsIntact() const;
  // They become the values of `tensors`.
  void CopyTo(const std::vector<at::Tensor>& tensors) const;

  std::int64_t sum() const { return sum_; }
  const std::vector<at::Tensor>& tensors() const { return copies_; }

 private:
  bool kept_ = false;
  std::int64_t sum_ = 0;
  std::vector<at::Tensor> copies_;
};

}  // namespace ddprun
