// SPDX-License-Identifier: Apache-2.0
// Whether floating-point numbers in memory are finite.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstddef>

namespace ddprun {

// Whether `bytes` at `values`, numbers of `type`, hold neither an infinity nor a NaN. Numbers of
// other types than float64, float32, float16 and bfloat16 always are. By the calling thread alone.
bool AllFinite(const char* values, std::size_t bytes, c10::ScalarType type);

}  // namespace ddprun
