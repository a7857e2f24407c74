// SPDX-License-Identifier: Apache-2.0
// From stored bytes to what a model takes: normalised floats, in training shifted and mirrored at
// random.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "worker/dataset.h"

namespace ddprun {

inline constexpr std::int64_t kCropPadding = 4;

// Where a 32x32 image is cut from its padded self, and whether it is mirrored. Padding is zero
// bytes, as black as the images' own background.
struct Placement {
  std::int64_t shift_y = 0;  // -kCropPadding to kCropPadding
  std::int64_t shift_x = 0;
  bool mirrored = false;
};

// A function of its arguments only: the same image at the same place of the same epoch is cut the
// same way, however many threads work and whatever came before.
Placement RandomPlacement(std::uint64_t seed, std::uint64_t epoch, std::uint64_t rank,
                          std::uint64_t position);

// Writes images into batches. Constant after construction: any thread may use it. The data set must
// outlive it.
class BatchWriter {
 public:
  BatchWriter(const LabelledImages& set, std::int64_t channels, const std::vector<float>& mean,
              const std::vector<float>& std);

  // Image `index` as placed, to `out`, which takes channels() * height() * width() floats: planes
  // one after another, or with `channels_last` the channels of one pixel side by side.
  void Write(std::int64_t index, const Placement& placement, bool channels_last, float* out) const;

  std::int64_t channels() const { return channels_; }
  std::int64_t height() const { return height_; }
  std::int64_t width() const { return width_; }

 private:
  void WriteRow(const std::uint8_t* row, const Placement& placement, const float* values,
                std::int64_t stride, float* out) const;

  const std::uint8_t* const pixels_;
  const std::int64_t stored_channels_;
  const std::int64_t channels_;
  const std::int64_t height_;
  const std::int64_t width_;
  std::vector<float>
      values_;  // of byte b on channel c at c * 256 + b: (b / 255 - mean) / std, in Python's order
};

}  // namespace ddprun
