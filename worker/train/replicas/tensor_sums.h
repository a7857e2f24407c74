// SPDX-License-Identifier: Apache-2.0
// Checksums of tensors that tell ranks with the same values from others, as fast as the memory is
// read.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "worker/library/accelerator/kernel_launcher.h"

namespace ddprun {

// A number of the values of all tensors, in the order of their memory, as an int64 scalar on
// `device`, which it does not wait for. One flipped bit always changes it. Ranks with the same
// values get the same number where their devices are of one kind.
at::Tensor SumOf(const std::vector<at::Tensor>& tensors, at::Device device);

// The two ways of SumOf() on a GPU. By its kernels: one launch for each 64 tensors and one to add.
// By LibTorch's operations, for one tensor: as many operations for each tensor.
at::Tensor SumByKernel(KernelLauncher& kernels, const std::vector<at::Tensor>& tensors);
at::Tensor SumByOperations(const at::Tensor& tensor);

// The sum before each step's update, on the device: adding one waits for nothing, and may be part
// of a CUDA graph.
class StepSums {
 public:
  // Holds the sums of the last `steps` steps.
  StepSums(std::vector<at::Tensor> tensors, at::Device device, std::int64_t steps);

  void Add();
  // The next one added is the first.
  void Clear();
  // The first `count` sums. Waits for the device.
  std::vector<std::int64_t> Get(std::int64_t count) const;

 private:
  const std::vector<at::Tensor> tensors_;
  const at::Device device_;
  const at::Tensor sums_;
  const at::Tensor next_;  // index of the next one
};

}  // namespace ddprun
