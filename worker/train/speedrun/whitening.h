// SPDX-License-Identifier: Apache-2.0
// Filters that decorrelate images: the first layer of airbench, computed from training images
// instead of learned.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace ddprun {

// Key in the state dict: the model's only parameter whose training ends before the others'.
inline constexpr char kWhiteningBias[] = "whiten.bias";

// How the kernel x kernel patches of images vary together, about zero.
class PatchCovariance {
 public:
  PatchCovariance(std::int64_t channels, std::int64_t kernel);

  // N x channels x height x width floats on any device, each side at least `kernel`. Waits for that
  // device.
  void Add(const at::Tensor& images);

  // 2D x channels x kernel x kernel floats on the CPU, where D = channels * kernel * kernel: the
  // eigenvectors of the covariance, each divided by the root of its eigenvalue + eps, and after
  // them their negatives. The first D answer to the patches with uncorrelated numbers of variance 1
  // (less where an eigenvalue is not far above eps). Something must have been added. After Keller
  // Jordan's init_whiten (cifar10-airbench), and that after David Page's "How to Train Your ResNet
  // 8: Bag of Tricks" (2019).
  //
  // Directions in which the images do not vary at all (grey ones that are shown on three channels
  // have 8 of 12) give way to the others once more: their answers would be rounding, which a batch
  // norm makes as large as all else.
  at::Tensor Filters(double eps) const;

 private:
  const std::int64_t channels_;
  const std::int64_t kernel_;
  at::Tensor sum_;  // double, D x D, on the CPU
  std::int64_t patches_ = 0;
};

}  // namespace ddprun
