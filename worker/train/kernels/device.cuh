// SPDX-License-Identifier: Apache-2.0
// What the kernels share. NVRTC compiles them with these headers alone;
// tests/testing/cuda_emulator.h compiles them for the CPU.
#pragma once

namespace ddprun::device {

using int64 = long long;
using Float = float;

// 16-bit floating point as it is in memory.
struct BFloat16 {
  unsigned short bits;
};
struct Half {
  unsigned short bits;
};

// What one thread loads or stores at a time: 16 bytes.
template <typename T>
inline constexpr int kPack = 16 / sizeof(T);

template <typename T, int N>
struct alignas(N * sizeof(T)) Pack {
  T values[N];
};

#ifdef __CUDACC_RTC__
__device__ inline unsigned short BFloat16Bits(float value) {
  unsigned short bits;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return bits;
}

__device__ inline unsigned short HalfBits(float value) {
  unsigned short bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return bits;
}

__device__ inline float FloatOfHalf(unsigned short bits) {
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
  return value;
}
#endif

__device__ inline float ToFloat(float value) { return value; }
__device__ inline float ToFloat(Half value) { return FloatOfHalf(value.bits); }
__device__ inline float ToFloat(BFloat16 value) {
  return __uint_as_float(static_cast<unsigned>(value.bits) << 16);
}

// Rounded to the nearest, ties to even.
template <typename T>
__device__ T FromFloat(float value);
template <>
__device__ inline float FromFloat<float>(float value) {
  return value;
}
template <>
__device__ inline Half FromFloat<Half>(float value) {
  return {HalfBits(value)};
}
template <>
__device__ inline BFloat16 FromFloat<BFloat16>(float value) {
  return {BFloat16Bits(value)};
}

}  // namespace ddprun::device
