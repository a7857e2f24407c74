// SPDX-License-Identifier: Apache-2.0
#include "worker/layers/pool_kernel.h"

#include <bit>

#include "worker/base/for_each_cpu.h"

namespace ddprun::pool {
namespace {

[[gnu::always_inline]] inline bool Takes(float challenger, float largest) {
  return (challenger > largest) | (challenger != challenger);
}

[[gnu::always_inline]] inline std::uint32_t MaskOf(bool condition) { return condition ? ~0u : 0u; }

[[gnu::always_inline]] inline float Choose(std::uint32_t mask, float there, float elsewhere) {
  return std::bit_cast<float>((std::bit_cast<std::uint32_t>(there) & mask) |
                              (std::bit_cast<std::uint32_t>(elsewhere) & ~mask));
}

[[gnu::always_inline]] inline void PoolWindow(const float* __restrict a, const float* __restrict b,
                                              const float* __restrict c, const float* __restrict d,
                                              std::int64_t channels, bool relu,
                                              float* __restrict out) {
  for (std::int64_t i = 0; i < channels; ++i) {
    float largest = a[i];
    largest = Takes(b[i], largest) ? b[i] : largest;
    largest = Takes(c[i], largest) ? c[i] : largest;
    largest = Takes(d[i], largest) ? d[i] : largest;
    out[i] = relu && largest <= 0.0f ? 0.0f : largest;
  }
}

// Where the largest was found, of each of the four pixels of a window.
struct Gradients {
  float* a;
  float* b;
  float* c;
  float* d;
};

[[gnu::always_inline]] inline void SpreadWindow(
    const float* __restrict a, const float* __restrict b, const float* __restrict c,
    const float* __restrict d, const float* __restrict gradient, std::int64_t channels, bool relu,
    const Gradients& to) {
  float* __restrict to_a = to.a;
  float* __restrict to_b = to.b;
  float* __restrict to_c = to.c;
  float* __restrict to_d = to.d;
  for (std::int64_t i = 0; i < channels; ++i) {
    // Masks instead of conditions, which the compiler would not make vectors of.
    const std::uint32_t is_b = MaskOf(Takes(b[i], a[i]));
    const float upper = Choose(is_b, b[i], a[i]);
    const std::uint32_t is_c = MaskOf(Takes(c[i], upper));
    const float three = Choose(is_c, c[i], upper);
    const std::uint32_t is_d = MaskOf(Takes(d[i], three));
    const std::uint32_t dead = MaskOf(relu & (Choose(is_d, d[i], three) <= 0.0f));
    const std::uint32_t given = std::bit_cast<std::uint32_t>(gradient[i]) & ~dead;
    to_a[i] = std::bit_cast<float>(given & ~(is_b | is_c | is_d));
    to_b[i] = std::bit_cast<float>(given & is_b & ~(is_c | is_d));
    to_c[i] = std::bit_cast<float>(given & is_c & ~is_d);
    to_d[i] = std::bit_cast<float>(given & is_d);
  }
}

}  // namespace

DDPRUN_FOR_EACH_CPU
void Forward(const Shape& shape, const float* x, std::int64_t begin, std::int64_t end, float* out) {
  const std::int64_t right = shape.channels;
  const std::int64_t below = 2 * shape.width * shape.channels;
  for (std::int64_t row = begin; row < end; ++row) {
    for (std::int64_t column = 0; column < shape.width; ++column) {
      const float* from = x + 2 * row * below + 2 * column * right;
      float* const to = out + (row * shape.width + column) * shape.channels;
      if (shape.relu)
        PoolWindow(from, from + right, from + below, from + below + right, shape.channels, true,
                   to);
      else
        PoolWindow(from, from + right, from + below, from + below + right, shape.channels, false,
                   to);
    }
  }
}

DDPRUN_FOR_EACH_CPU
void Backward(const Shape& shape, const float* x, const float* gradient, std::int64_t begin,
              std::int64_t end, float* x_gradient) {
  const std::int64_t right = shape.channels;
  const std::int64_t below = 2 * shape.width * shape.channels;
  for (std::int64_t row = begin; row < end; ++row) {
    for (std::int64_t column = 0; column < shape.width; ++column) {
      const std::int64_t at = 2 * row * below + 2 * column * right;
      const float* const from = x + at;
      float* const to = x_gradient + at;
      const float* const given = gradient + (row * shape.width + column) * shape.channels;
      const Gradients four{to, to + right, to + below, to + below + right};
      if (shape.relu)
        SpreadWindow(from, from + right, from + below, from + below + right, given, shape.channels,
                     true, four);
      else
        SpreadWindow(from, from + right, from + below, from + below + right, given, shape.channels,
                     false, four);
    }
  }
}

}  // namespace ddprun::pool
