// SPDX-License-Identifier: Apache-2.0
// The allowed values of settings that are numbers.
#pragma once

#include <string>

#include "worker/train/config/config.h"

namespace ddprun {

// Epochs, images and the like are multiplied with each other: a product of two fits 64 bits.
inline constexpr double kNumberMax = 1e9;

// The shortest text that is read as the same number.
std::string NumberText(double value);

// Throws UsageError that names the first setting whose value is out of its range.
void CheckRanges(const Config& config);

}  // namespace ddprun
