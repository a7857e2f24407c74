// SPDX-License-Identifier: Apache-2.0
// BMP files to red, green and blue bytes. Thread-safe.
#pragma once

#include <cstdint>
#include <span>

#include "worker/train/data/rgb_image.h"

namespace ddprun {

bool IsBitmap(std::span<const std::uint8_t> file);

// By its header. Throws ImageError, also if the file is cut off or its kind is not read: 1, 4, 8,
// 16, 24 and 32 bits a pixel are, run-length encoding is not.
ImageSize ReadBitmapSize(std::span<const std::uint8_t> file);

// Transparency is dropped. Samples of fewer than eight bits are scaled to 255 and cut down to whole
// numbers, as Pillow does it. Throws ImageError.
RgbImage DecodeBitmap(std::span<const std::uint8_t> file);

}  // namespace ddprun
