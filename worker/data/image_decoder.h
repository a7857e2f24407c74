// SPDX-License-Identifier: Apache-2.0
// JPEG (libjpeg) and PNG (libpng) to red, green and blue bytes. Thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <stdexcept>
#include <vector>

namespace ddprun {

// Larger images are rejected as decompression bombs before anything is decoded. Pillow's limit: 1
// GiB / 4 / 3.
inline constexpr std::int64_t kImagePixelsMax = 89'478'485;

// Scans of a progressive JPEG. Encoders write 10 or so; each costs a pass over the whole image, and
// an empty one has a few bytes.
inline constexpr int kJpegScansMax = 64;

// One clause: why it is not an image.
struct ImageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct ImageSize {
  std::int64_t height = 0;
  std::int64_t width = 0;
};

struct RgbImage {
  ImageSize size;
  std::vector<std::uint8_t> pixels;  // height x width x 3
};

// What an image is by its header, and whether that is a size to be decoded. Throws ImageError.
ImageSize ReadImageSize(std::span<const std::uint8_t> file);

// A JPEG may be decoded at a half, a quarter or an eighth of its size, which is faster:
// `denominator` is 1, 2, 4 or 8. A PNG is always decoded in full. Transparency is dropped; grey,
// CMYK and palettes become colours; 16-bit samples keep their upper eight bits, and gamma, colour
// profiles and orientation are not applied: the pixels of torchvision.io. Throws ImageError if the
// file is cut off or damaged.
RgbImage DecodeImage(std::span<const std::uint8_t> file, int denominator);

}  // namespace ddprun
