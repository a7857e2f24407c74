// SPDX-License-Identifier: Apache-2.0
// Data generated from a seed; no files are needed. For tests, benchmarks and first steps.
#pragma once

#include "worker/data/dataset.h"

namespace ddprun {

// Limit of the generated data, in each rank's memory.
inline constexpr std::int64_t kSyntheticBytesMax = std::int64_t{16} << 30;

// Images that can be learnt: each class (10 if not asked otherwise) has a coarse pattern of its
// own, under noise. 3 x input_size x input_size, `samples` for training and a quarter as many for
// testing. Throws DataError if that is more than kSyntheticBytesMax.
Dataset OpenSynthetic(const DatasetOptions& options);

// Rows of `input_size` random numbers with random labels of 2 classes, if not asked otherwise: 1 x
// 1 x input_size. Nothing can be learnt from it but by heart. Throws as above.
Dataset OpenRandom(const DatasetOptions& options);

}  // namespace ddprun
