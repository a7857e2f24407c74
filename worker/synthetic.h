// SPDX-License-Identifier: Apache-2.0
// Images made from a seed: no file is needed, and they can be learnt. For tests, benchmarks and
// first steps.
#pragma once

#include "worker/dataset.h"

namespace ddprun {

inline constexpr std::int64_t kSyntheticTrainImages = 4096;
inline constexpr std::int64_t kSyntheticTestImages = 1024;

// Ten classes of 3x32x32 images. Each class has a coarse pattern of its own, under noise.
Dataset OpenSynthetic(const DatasetOptions& options);

}  // namespace ddprun
