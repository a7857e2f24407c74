// SPDX-License-Identifier: Apache-2.0
// A training set kept as bytes in GPU memory. Batches are cropped, mirrored and normalised there by
// one kernel (batch.cu) or a few tensor operations, without data from the host. The numbers are
// those of FixedSizeImages::Write(), bit by bit, but for the rounding to a type of 16 bits.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "worker/library/accelerator/kernel_launcher.h"
#include "worker/library/math/epoch_plan.h"
#include "worker/train/data/fixed_size_images.h"

namespace ddprun {

class GpuImages {
 public:
  // What one sample is made by: its index, the row and the column of the padded image that its
  // first row and column come from, and 1, or -1 where columns go backwards.
  static constexpr std::int64_t kColumns = 4;

  struct Batch {
    at::Tensor images;  // N x C x H x W, channels last in memory
    at::Tensor labels;  // int64, N
  };

  // That the set takes on a device.
  static std::int64_t BytesOf(const FixedSizeImages& set, const AugmentOptions& variation);

  // Copies the set. Throws c10::Error if the device has no room for it.
  GpuImages(const FixedSizeImages& set, const AugmentOptions& variation, at::Device device);

  // int32, N x kColumns, on the CPU: as they are, or varied by `draw`, whose position and index are
  // those of each sample.
  at::Tensor Rows(const std::vector<Sample>& samples, const std::optional<Draw>& draw) const;

  // Which rows make a batch, and in which form.
  struct Request {
    at::Tensor rows;    // as of Rows(), on the device
    at::Tensor cursor;  // int64 scalar there: added to `first`; undefined for 0
    std::int64_t first = 0;
    std::int64_t count = 0;
    at::ScalarType type = at::kFloat;  // of the images: float, bfloat16 or half
    std::int64_t channels = 0;         // of the images, those past the set's zero; 0: the set's
  };

  // Never waits for the device, so that a graph can be captured of it.
  Batch Make(const Request& request) const;

 private:
  Batch MakeByKernel(KernelLauncher& launcher, const Request& request) const;
  Batch MakeByTensors(const Request& request) const;

  const FixedSizeImages::Options options_;
  const AugmentOptions variation_;
  at::Tensor padded_;  // uint8, N x (H + 2 * padding) x (W + 2 * padding) x C
  at::Tensor labels_;  // int64
  at::Tensor mean_;    // float, C
  at::Tensor std_;
  at::Tensor white_;  // 255
  at::Tensor down_;   // int32, 0 ... H - 1
  at::Tensor right_;  // int32, 0 ... W - 1
};

}  // namespace ddprun
