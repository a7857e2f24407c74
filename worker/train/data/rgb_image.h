// SPDX-License-Identifier: Apache-2.0
// An image in memory, and why a file is none: shared by the decoders of all kinds of files.
#pragma once

#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace ddprun {

// Memory that decoding one image may take. Larger images are rejected before anything is allocated.
inline constexpr std::int64_t kImageBytesMax = std::int64_t{1} << 30;

// One clause: why it is not an image that can be read.
struct ImageError : std::runtime_error {
  using std::runtime_error::runtime_error;
  ImageError(const std::string& fact, std::string move)
      : std::runtime_error(fact), next_move(std::move(move)) {}

  std::string next_move = "replace or remove the file, or pass --skip-damaged";
};

struct ImageSize {
  std::int64_t height = 0;
  std::int64_t width = 0;
};

struct RgbImage {
  ImageSize size;
  std::vector<std::uint8_t> pixels;  // height x width x 3
};

// Throws ImageError if the size is not positive or `bytes_per_pixel` of memory for each pixel is
// more than kImageBytesMax.
void CheckImageSize(ImageSize size, double bytes_per_pixel);

}  // namespace ddprun
