// SPDX-License-Identifier: Apache-2.0
#include "worker/train/data/normalise.h"

#include "worker/library/base/for_each_cpu.h"

namespace ddprun {

DDPRUN_FOR_EACH_CPU
void Normalise(const std::uint8_t* __restrict in, const float* __restrict mean,
               const float* __restrict std, std::int64_t count, float* __restrict out) {
  for (std::int64_t i = 0; i < count; ++i) {
    out[i] = (static_cast<float>(in[i]) / 255.0f - mean[i]) / std[i];
  }
}

DDPRUN_FOR_EACH_CPU
void NormalisePlane(const std::uint8_t* __restrict in, float mean, float std, std::int64_t count,
                    float* __restrict out) {
  for (std::int64_t i = 0; i < count; ++i) {
    out[i] = (static_cast<float>(in[i]) / 255.0f - mean) / std;
  }
}

DDPRUN_FOR_EACH_CPU
void Interleave3(const std::uint8_t* __restrict row0, const std::uint8_t* __restrict row1,
                 const std::uint8_t* __restrict row2, std::int64_t width,
                 std::uint8_t* __restrict out) {
  for (std::int64_t x = 0; x < width; ++x) {
    out[3 * x] = row0[x];
    out[3 * x + 1] = row1[x];
    out[3 * x + 2] = row2[x];
  }
}

DDPRUN_FOR_EACH_CPU
void Mirror(const std::uint8_t* __restrict in, std::int64_t width, std::uint8_t* __restrict out) {
  for (std::int64_t x = 0; x < width; ++x) out[x] = in[width - 1 - x];
}

}  // namespace ddprun
