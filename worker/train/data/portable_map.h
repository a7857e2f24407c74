// SPDX-License-Identifier: Apache-2.0
// PPM and PGM files (P2, P3, P5 and P6 of Netpbm) to red, green and blue bytes. Thread-safe.
#pragma once

#include <cstdint>
#include <span>

#include "worker/train/data/rgb_image.h"

namespace ddprun {

bool IsPortableMap(std::span<const std::uint8_t> file);

// By its header. Throws ImageError, also if the file has fewer samples than it says.
ImageSize ReadPortableMapSize(std::span<const std::uint8_t> file);

// Grey becomes three equal colours; samples are scaled from their maximum to 255 and rounded, as
// Pillow does it. Throws ImageError.
RgbImage DecodePortableMap(std::span<const std::uint8_t> file);

}  // namespace ddprun
