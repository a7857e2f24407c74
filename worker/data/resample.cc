// SPDX-License-Identifier: Apache-2.0
#include "worker/data/resample.h"

#include <algorithm>
#include <cmath>

namespace ddprun {
namespace {

constexpr std::int64_t kColours = 3;

// One output pixel is the weighted sum of input pixels from `first` on.
struct Window {
  std::int64_t first = 0;
  std::vector<float> weights;
};

std::vector<Window> Windows(const Axis& axis, std::int64_t size) {
  const double reach = std::max(axis.scale, 1.0);  // of the triangle to either side
  std::vector<Window> windows(static_cast<std::size_t>(size));
  for (std::int64_t i = 0; i < size; ++i) {
    const double centre = axis.begin + (static_cast<double>(i) + 0.5) * axis.scale;
    // The input pixels whose centres are within reach, rounded as Pillow does.
    const auto from = static_cast<std::int64_t>(std::floor(centre - reach + 0.5));
    const auto to = static_cast<std::int64_t>(std::floor(centre + reach + 0.5));
    Window& window = windows[static_cast<std::size_t>(i)];
    window.first = std::clamp(from, axis.low, axis.high - 1);
    const std::int64_t last = std::clamp(to, window.first + 1, axis.high);
    double sum = 0;
    std::vector<double> weights;
    for (std::int64_t x = window.first; x < last; ++x) {
      const double distance = std::abs(static_cast<double>(x) + 0.5 - centre) / reach;
      weights.push_back(std::max(0.0, 1 - distance));
      sum += weights.back();
    }
    for (const double weight : weights) {
      // A window of one pixel that the centre is far from has no weight of its own.
      window.weights.push_back(
          static_cast<float>(sum > 0 ? weight / sum : 1.0 / static_cast<double>(weights.size())));
    }
  }
  return windows;
}

}  // namespace

std::vector<float> Resample(const RgbImage& image, const Axis& vertical, const Axis& horizontal,
                            std::int64_t size) {
  const std::vector<Window> columns = Windows(horizontal, size);
  const std::vector<Window> rows = Windows(vertical, size);
  const std::int64_t top = rows.front().first;
  const auto bottom = rows.back().first + static_cast<std::int64_t>(rows.back().weights.size());
  const std::int64_t row_floats = size * kColours;
  // First each row that counts is made as wide as the output, then those are mixed.
  std::vector<float> narrow(static_cast<std::size_t>((bottom - top) * row_floats));
  for (std::int64_t y = top; y < bottom; ++y) {
    const std::uint8_t* in = image.pixels.data() + y * image.size.width * kColours;
    float* out = narrow.data() + (y - top) * row_floats;
    for (const Window& window : columns) {
      const std::uint8_t* pixel = in + window.first * kColours;
      float sum[kColours] = {};
      for (const float weight : window.weights) {
        for (std::int64_t c = 0; c < kColours; ++c) sum[c] += weight * static_cast<float>(pixel[c]);
        pixel += kColours;
      }
      out = std::copy_n(sum, kColours, out);
    }
  }
  std::vector<float> result(static_cast<std::size_t>(size * row_floats), 0.0f);
  for (std::int64_t y = 0; y < size; ++y) {
    const Window& window = rows[static_cast<std::size_t>(y)];
    const float* in = narrow.data() + (window.first - top) * row_floats;
    float* out = result.data() + y * row_floats;
    for (const float weight : window.weights) {
      for (std::int64_t x = 0; x < row_floats; ++x) out[x] += weight * in[x];
      in += row_floats;
    }
  }
  return result;
}

}  // namespace ddprun
