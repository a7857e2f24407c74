// SPDX-License-Identifier: Apache-2.0
#include "worker/augment.h"

#include <algorithm>

#include "worker/random.h"

namespace ddprun {
namespace {
constexpr std::int64_t kByteValues = 256;
}

Placement RandomPlacement(std::uint64_t seed, std::uint64_t epoch, std::uint64_t rank,
                          std::uint64_t position) {
  SplitMix64 random({seed, epoch, rank, position});
  constexpr auto kShifts = static_cast<std::uint32_t>(2 * kCropPadding + 1);
  Placement placement;
  placement.shift_y = static_cast<std::int64_t>(random.Below(kShifts)) - kCropPadding;
  placement.shift_x = static_cast<std::int64_t>(random.Below(kShifts)) - kCropPadding;
  placement.mirrored = random.Below(2) == 1;
  return placement;
}

BatchWriter::BatchWriter(const LabelledImages& set, std::int64_t channels,
                         const std::vector<float>& mean, const std::vector<float>& std)
    : pixels_(set.images.const_data_ptr<std::uint8_t>()),
      stored_channels_(set.images.size(1)),
      channels_(channels),
      height_(set.images.size(2)),
      width_(set.images.size(3)),
      values_(static_cast<std::size_t>(channels * kByteValues)) {
  for (std::int64_t c = 0; c < channels_; ++c) {
    for (std::int64_t b = 0; b < kByteValues; ++b) {
      const auto channel = static_cast<std::size_t>(c);
      values_[static_cast<std::size_t>(c * kByteValues + b)] =
          (static_cast<float>(b) / 255.0f - mean[channel]) / std[channel];
    }
  }
}

void BatchWriter::Write(std::int64_t index, const Placement& placement, bool channels_last,
                        float* out) const {
  const std::int64_t plane = height_ * width_;
  const std::int64_t pixel_stride = channels_last ? channels_ : 1;
  for (std::int64_t c = 0; c < channels_; ++c) {
    const std::uint8_t* in = pixels_ + (index * stored_channels_ + c % stored_channels_) * plane;
    float* channel_out = out + (channels_last ? c : c * plane);
    for (std::int64_t y = 0; y < height_; ++y) {
      const std::int64_t from = y + placement.shift_y;
      const std::uint8_t* row = from >= 0 && from < height_ ? in + from * width_ : nullptr;
      WriteRow(row, placement, values_.data() + c * kByteValues, pixel_stride,
               channel_out + y * width_ * pixel_stride);
    }
  }
}

void BatchWriter::WriteRow(const std::uint8_t* row, const Placement& placement, const float* values,
                           std::int64_t stride, float* out) const {
  // Columns [first, last) of the output come from the row, the others from the padding.
  const std::int64_t first = row ? std::max<std::int64_t>(0, -placement.shift_x) : width_;
  const std::int64_t last = row ? std::min(width_, width_ - placement.shift_x) : width_;
  float* const begin = placement.mirrored ? out + (width_ - 1) * stride : out;
  const std::int64_t step = placement.mirrored ? -stride : stride;
  for (std::int64_t x = 0; x < first; ++x) begin[x * step] = values[0];
  for (std::int64_t x = first; x < last; ++x) begin[x * step] = values[row[x + placement.shift_x]];
  for (std::int64_t x = last; x < width_; ++x) begin[x * step] = values[0];
}

}  // namespace ddprun
