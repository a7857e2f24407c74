// SPDX-License-Identifier: Apache-2.0
// Files of images to red, green and blue bytes: JPEG (libjpeg), PNG (libpng), PPM and PGM
// (portable_map.h) and BMP (bitmap.h), told by their first bytes. Thread-safe.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>

#include "worker/train/data/rgb_image.h"

namespace ddprun {

// Scans of a progressive JPEG. Encoders write 10 or so; each costs a pass over the whole image, and
// an empty one has a few bytes.
inline constexpr int kJpegScansMax = 64;

// The smallest size at which a JPEG is decoded is this part of it.
inline constexpr int kJpegDenominatorMax = 8;

// As part of a sentence.
inline constexpr char kImageEndings[] = ".jpg, .jpeg, .png, .ppm, .pgm, .pnm or .bmp";

// Whether the name ends like that of an image that is read, in upper or lower case.
bool HasImageEnding(const std::filesystem::path& path);

// The size that the header states. Throws ImageError, also if the image would take more memory than
// kImageBytesMax (a JPEG: even at an eighth of its size), or if the file is too short for its size.
ImageSize ReadImageSize(std::span<const std::uint8_t> file);

// A JPEG may be decoded at a half, a quarter or an eighth of its size, which is faster:
// `denominator` is 1, 2, 4 or 8, and a larger one is taken where the image would take more memory
// than kImageBytesMax. Other files are always decoded in full. Transparency is dropped; grey,
// CMYK and palettes become colours; 16-bit samples keep their upper eight bits, and gamma, colour
// profiles and orientation are not applied: the pixels of torchvision.io. Throws ImageError if the
// file is cut off or damaged.
RgbImage DecodeImage(std::span<const std::uint8_t> file, int denominator);

}  // namespace ddprun
