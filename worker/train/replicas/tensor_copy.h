// SPDX-License-Identifier: Apache-2.0
// Copies of the tensors of a state, to go back to.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace ddprun {

// Memory is taken by the first Keep(), as much as those tensors have. On a GPU it copies by a few
// kernels for each run of tensors of one type, and does not wait for the device.
class TensorCopy {
 public:
  // The values that `tensors` have now. Always tensors of the same shapes and types.
  void Keep(const std::vector<at::Tensor>& tensors);
  // The same; `sum` is their SumOf(), for IsIntact().
  void Keep(const std::vector<at::Tensor>& tensors, std::int64_t sum);
  // Whether there are values with a sum, which they still have: their own memory was not damaged
  // since.
  bool IsIntact() const;
  // They become the values of `tensors`.
  void CopyTo(const std::vector<at::Tensor>& tensors) const;

  std::int64_t sum() const { return sum_; }
  const std::vector<at::Tensor>& tensors() const { return copies_; }

 private:
  bool has_sum_ = false;
  std::int64_t sum_ = 0;
  std::vector<at::Tensor> copies_;
};

}  // namespace ddprun
