// SPDX-License-Identifier: Apache-2.0
// The inner loops over pixels: normalisation, interleaving and mirroring, compiled for
// several instruction sets; the best one that the processor has is chosen when the program starts.
// All give the same numbers, bit by bit.
#pragma once

#include <cstdint>

namespace ddprun {

// out[i] = (in[i] / 255 - mean[i]) / std[i], in Python's order and precision.
void Normalise(const std::uint8_t* in, const float* mean, const float* std, std::int64_t count,
               float* out);

// The same with one mean and one std for all.
void NormalisePlane(const std::uint8_t* in, float mean, float std, std::int64_t count, float* out);

// Three planes' rows side by side: out[3 * x + c] = row c at x.
void Interleave3(const std::uint8_t* row0, const std::uint8_t* row1, const std::uint8_t* row2,
                 std::int64_t width, std::uint8_t* out);

// out[x] = in[width - 1 - x]
void Mirror(const std::uint8_t* in, std::int64_t width, std::uint8_t* out);

}  // namespace ddprun
