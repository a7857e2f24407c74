// SPDX-License-Identifier: Apache-2.0
#include "worker/train/data/fixed_size_images.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "worker/train/data/normalise.h"

namespace ddprun {
namespace {

// Rows are prepared in blocks that stay in the first-level cache, but at least one row.
constexpr std::int64_t kBlockBytes = 4096;

std::int64_t PixelRowsAtATime(const SampleShape& shape) {
  return std::clamp<std::int64_t>(kBlockBytes / (shape.channels * shape.width), 1, shape.height);
}

// The calling thread's, for what is prepared of one image at a time.
std::uint8_t* Scratch(std::int64_t bytes) {
  thread_local std::vector<std::uint8_t> scratch;
  if (scratch.size() < static_cast<std::size_t>(bytes)) scratch.resize(bytes);
  return scratch.data();
}

// At the outermost of `size` pixels, which are not repeated: -1 is 1, `size` is size - 2.
std::int64_t Reflected(std::int64_t at, std::int64_t size) {
  if (at < 0) return -at;
  return at < size ? at : 2 * (size - 1) - at;
}

}  // namespace

void CheckLabels(const LabelledImages& set, std::int64_t classes, const std::string& source) {
  const auto* labels = set.labels.const_data_ptr<std::int64_t>();
  for (std::int64_t i = 0; i < set.size(); ++i) {
    if (labels[i] >= 0 && labels[i] < classes) continue;
    throw DataError(source + ": label " + std::to_string(labels[i]) + " of image " +
                    std::to_string(i) + " is not below " + std::to_string(classes) +
                    ", the file is damaged or of another data set; fetch it again");
  }
}

FixedSizeImages::FixedSizeImages(std::vector<LabelledImages> parts, Options options)
    : parts_(std::move(parts)),
      options_(std::move(options)),
      stored_channels_(parts_.at(0).images.size(1)),
      stored_height_(parts_[0].images.size(2)),
      stored_width_(parts_[0].images.size(3)) {
  part_begins_.push_back(0);
  for (const auto& part : parts_) part_begins_.push_back(part_begins_.back() + part.size());
  const std::int64_t pixels = PixelRowsAtATime(options_.shape) * options_.shape.width;
  for (std::int64_t x = 0; x < pixels; ++x) {
    row_mean_.insert(row_mean_.end(), options_.mean.begin(), options_.mean.end());
    row_std_.insert(row_std_.end(), options_.std.begin(), options_.std.end());
  }
}

FixedSizeImages::Place FixedSizeImages::Find(std::int64_t index) const {
  const auto after = std::upper_bound(part_begins_.begin(), part_begins_.end(), index);
  const auto part = static_cast<std::size_t>(after - part_begins_.begin()) - 1;
  return {part, index - part_begins_[part]};
}

std::int64_t FixedSizeImages::Label(std::int64_t index) const {
  const Place place = Find(index);
  return parts_[place.part].labels.const_data_ptr<std::int64_t>()[place.index];
}

const std::uint8_t* FixedSizeImages::Pixels(std::int64_t index) const {
  const Place place = Find(index);
  const at::Tensor& images = parts_[place.part].images;
  return images.const_data_ptr<std::uint8_t>() + place.index * images.stride(0);
}

void FixedSizeImages::Write(std::int64_t index, const Draw* draw, bool channels_last,
                            float* out) const {
  const bool varied = draw && options_.varied;
  WritePlaced(index, varied ? RandomPlacement(*draw) : Placement{}, channels_last, out,
              varied ? draw->options.mode : Padding::kZero);
}

void FixedSizeImages::WritePlaced(std::int64_t index, const Placement& placement,
                                  bool channels_last, float* out, Padding padding) const {
  const std::uint8_t* pixels = Pixels(index);
  const Cut cut{placement, padding};
  if (channels_last && options_.shape.channels > 1) {
    WritePixels(pixels, cut, out);
  } else {
    WritePlanes(pixels, cut, out);
  }
}

void FixedSizeImages::WritePlanes(const std::uint8_t* pixels, const Cut& cut, float* out) const {
  const auto [channels, height, width] = options_.shape;
  const std::int64_t block = std::clamp<std::int64_t>(kBlockBytes / width, 1, height);
  std::uint8_t* const rows = Scratch(block * width);
  for (std::int64_t c = 0; c < channels; ++c) {
    const std::uint8_t* plane = pixels + c % stored_channels_ * stored_height_ * stored_width_;
    const auto channel = static_cast<std::size_t>(c);
    for (std::int64_t y = 0; y < height; y += block) {
      const std::int64_t count = std::min(block, height - y);
      for (std::int64_t i = 0; i < count; ++i) CopyRow(plane, y + i, cut, rows + i * width);
      NormalisePlane(rows, options_.mean[channel], options_.std[channel], count * width, out);
      out += count * width;
    }
  }
}

void FixedSizeImages::WritePixels(const std::uint8_t* pixels, const Cut& cut, float* out) const {
  const auto [channels, height, width] = options_.shape;
  const std::int64_t stored_plane = stored_height_ * stored_width_;
  const std::int64_t block = PixelRowsAtATime(options_.shape);
  std::uint8_t* const rows = Scratch(2 * channels * block * width);
  std::uint8_t* const mixed = rows + channels * block * width;
  for (std::int64_t y = 0; y < height; y += block) {
    const std::int64_t count = std::min(block, height - y);
    for (std::int64_t c = 0; c < stored_channels_; ++c) {
      for (std::int64_t i = 0; i < count; ++i) {
        CopyRow(pixels + c * stored_plane, y + i, cut, rows + (c * block + i) * width);
      }
    }
    if (channels == 3) {
      const std::int64_t next = stored_channels_ == 3 ? block * width : 0;
      Interleave3(rows, rows + next, rows + 2 * next, count * width, mixed);
    } else {
      for (std::int64_t x = 0; x < count * width; ++x) {
        for (std::int64_t c = 0; c < channels; ++c) {
          mixed[x * channels + c] = rows[c % stored_channels_ * block * width + x];
        }
      }
    }
    Normalise(mixed, row_mean_.data(), row_std_.data(), count * channels * width, out);
    out += count * channels * width;
  }
}

// One row of what the model sees.
void FixedSizeImages::CopyRow(const std::uint8_t* plane, std::int64_t y, const Cut& cut,
                              std::uint8_t* out) const {
  const bool moved = cut.placement.shift_y != 0 || cut.placement.shift_x != 0;
  if (moved && cut.padding == Padding::kReflect) {
    CopyRowReflected(plane, y, cut.placement, out);
  } else {
    CopyRowInZeros(plane, y, cut.placement, out);
  }
}

void FixedSizeImages::CopyRowReflected(const std::uint8_t* plane, std::int64_t y,
                                       const Placement& placement, std::uint8_t* out) const {
  const std::int64_t width = options_.shape.width;
  const std::int64_t shift = placement.shift_x;
  // Rows of the image including its frame, if it has one.
  thread_local std::vector<std::uint8_t> rows;
  if (rows.size() < static_cast<std::size_t>(2 * width)) rows.resize(2 * width);
  std::uint8_t* const whole = rows.data();
  std::uint8_t* const cut = placement.mirrored ? whole + width : out;
  CopyRowInZeros(plane, Reflected(y + placement.shift_y, options_.shape.height), {}, whole);
  const std::int64_t first = std::max<std::int64_t>(0, -shift);
  const std::int64_t last = std::min(width, width - shift);
  for (std::int64_t x = 0; x < first; ++x) cut[x] = whole[Reflected(x + shift, width)];
  std::memcpy(cut + first, whole + first + shift, static_cast<std::size_t>(last - first));
  for (std::int64_t x = last; x < width; ++x) cut[x] = whole[Reflected(x + shift, width)];
  if (placement.mirrored) Mirror(cut, width, out);
}

void FixedSizeImages::CopyRowInZeros(const std::uint8_t* plane, std::int64_t y,
                                     const Placement& placement, std::uint8_t* out) const {
  const std::int64_t width = options_.shape.width;
  const std::int64_t from_y = y + placement.shift_y - (options_.shape.height - stored_height_) / 2;
  if (from_y < 0 || from_y >= stored_height_) {
    std::memset(out, 0, static_cast<std::size_t>(width));
    return;
  }
  // Columns [first, last) come from the image, the others from the padding.
  const std::int64_t shift = placement.shift_x - (width - stored_width_) / 2;
  const std::int64_t first = std::clamp<std::int64_t>(-shift, 0, width);
  const std::int64_t last = std::clamp<std::int64_t>(stored_width_ - shift, first, width);
  std::memset(out, 0, static_cast<std::size_t>(width));
  const std::uint8_t* from = plane + from_y * stored_width_ + first + shift;
  if (placement.mirrored) {
    Mirror(from, last - first, out + width - last);
  } else {
    std::memcpy(out + first, from, static_cast<std::size_t>(last - first));
  }
}

}  // namespace ddprun
