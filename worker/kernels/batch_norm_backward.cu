// SPDX-License-Identifier: Apache-2.0
// Batch norm in training with what follows it: backward.
#include "worker/kernels/norm_rows.cuh"

namespace ddprun::device {

__device__ inline float GeluSlope(float z) {
  const float below = 0.5f * (1.0f + erff(z * 0.70710678f));
  return below + z * expf(-0.5f * z * z) * 0.39894228f;
}

// The gradient that reaches the norm, past what follows it.
template <typename T, int V, bool kIsGelu>
__device__ float Reaching(const Norm<V>& norm, float x, float gradient, float out, int tail,
                          int i) {
  if (kIsGelu) return ToFloat(FromFloat<T>(gradient * GeluSlope(norm(x, i))));
  if (tail == kNone) return gradient;
  // Of the number that forward gave, after rounding.
  const float alive = tail == kAddRelu ? out : ToFloat(FromFloat<T>(norm(x, i)));
  return alive <= 0.0f ? 0.0f : gradient;
}

// Each block's sums of the gradients that reach the norm, and of them times x's distance from the
// mean. Where they are costly or must be returned (kAddRelu: the shortcut's), they are kept in
// `reaching`.
template <typename T, int V, bool kIsGelu>
__device__ void BlockGradientSums(const T* __restrict__ x, const T* __restrict__ gradient,
                                  const T* __restrict__ out, const float* statistics,
                                  const float* weight, const float* bias, const Rows& rows,
                                  int tail, T* __restrict__ reaching, float* partial) {
  __shared__ float sums[V][kNormThreads];
  __shared__ float products[V][kNormThreads];
  const Place<V> place(rows);
  const bool works = place.channel < rows.channels;
  float sum[V] = {};
  float product[V] = {};
  if (works) {
    const Norm<V> norm(statistics, weight, bias, place.channel, rows.channels);
#pragma unroll 2
    for (int64 row = place.row; row < rows.count; row += place.step) {
      const int64 at = row * rows.channels + place.channel;
      const Pack<T, V> pack = Load<T, V>(x + at);
      const Pack<T, V> given = Load<T, V>(gradient + at);
      Pack<T, V> made = {};
      if (!kIsGelu && tail == kAddRelu) made = Load<T, V>(out + at);
      Pack<T, V> kept;
      for (int i = 0; i < V; ++i) {
        const float value = ToFloat(pack.values[i]);
        const float g = Reaching<T, V, kIsGelu>(norm, value, ToFloat(given.values[i]),
                                                ToFloat(made.values[i]), tail, i);
        kept.values[i] = FromFloat<T>(g);
        sum[i] += g;
        product[i] += g * (value - norm.mean[i]);
      }
      if (kIsGelu || tail == kAddRelu) Store<T, V>(reaching + at, kept);
    }
  }
  const unsigned own = threadIdx.x;
  for (int i = 0; i < V; ++i) {
    sums[i][own] = sum[i];
    products[i][own] = product[i];
  }
  for (int half = place.lines / 2; half > 0; half /= 2) {
    __syncthreads();
    if (place.line < half) {
      const unsigned other = own + half * rows.lanes;
      for (int i = 0; i < V; ++i) {
        sums[i][own] += sums[i][other];
        products[i][own] += products[i][other];
      }
    }
  }
  if (place.line != 0 || !works) return;
  const int64 plane = static_cast<int64>(gridDim.x) * rows.channels;
  const int64 at = static_cast<int64>(blockIdx.x) * rows.channels + place.channel;
  for (int i = 0; i < V; ++i) {
    partial[at + i] = sums[i][own];
    partial[plane + at + i] = products[i][own];
  }
}

// `sums` are those of all blocks (and ranks): of gradients, and of gradients times normalised x.
// kRelu: of `gradient` only what passes the ReLU reaches the norm.
template <typename T, int V>
__device__ void InputGradient(const T* __restrict__ x, const T* __restrict__ gradient,
                              const float* statistics, const float* sums, const float* weight,
                              const float* bias, const Rows& rows, int tail, T* __restrict__ out) {
  const Place<V> place(rows);
  const int channels = rows.channels;
  if (place.channel >= channels) return;
  const Norm<V> norm(statistics, weight, bias, place.channel, channels);
  const float inverse_count = statistics[2 * channels];
  float mean_gradient[V];
  float slope[V];
  for (int i = 0; i < V; ++i) {
    const int channel = place.channel + i;
    mean_gradient[i] = sums[channel] * inverse_count;
    slope[i] = sums[channels + channel] * inverse_count * statistics[channels + channel];
  }
#pragma unroll 2
  for (int64 row = place.row; row < rows.count; row += place.step) {
    const int64 at = row * channels + place.channel;
    const Pack<T, V> pack = Load<T, V>(x + at);
    const Pack<T, V> given = Load<T, V>(gradient + at);
    Pack<T, V> result;
    for (int i = 0; i < V; ++i) {
      const float value = ToFloat(pack.values[i]);
      const float g = Reaching<T, V, false>(norm, value, ToFloat(given.values[i]), 0.0f, tail, i);
      const float distance = value - norm.mean[i];
      result.values[i] = FromFloat<T>((g - mean_gradient[i] - distance * slope[i]) * norm.scale[i]);
    }
    Store<T, V>(out + at, result);
  }
}

}  // namespace ddprun::device

// sums: of the gradients, which is the bias' gradient; of them times normalised x, the weight's.
DDPRUN_KERNEL norm_gradients(const float* partial, int blocks, int channels,
                             const float* statistics, float* sums) {
  using namespace ddprun::device;
  const int channel = CombinedChannel();
  const int64 plane = static_cast<int64>(blocks) * channels;
  double sum = 0.0;
  double product = 0.0;
  if (channel < channels) {
#pragma unroll 4
    for (int block = static_cast<int>(threadIdx.x) / kCombineChannels; block < blocks;
         block += kCombineLanes) {
      const int64 at = static_cast<int64>(block) * channels + channel;
      sum += partial[at];
      product += partial[plane + at];
    }
  }
  sum = SumOfColumn(sum);
  product = SumOfColumn(product);
  if (threadIdx.x >= kCombineChannels || channel >= channels) return;
  sums[channel] = static_cast<float>(sum);
  sums[channels + channel] = static_cast<float>(product * statistics[channels + channel]);
}

// packed: channels are a multiple of what 16 bytes hold.
#define DDPRUN_NORM_GRADIENT_SUMS(NAME, TYPE, IS_GELU)                                           \
  DDPRUN_KERNEL NAME(const ddprun::device::TYPE* x, const ddprun::device::TYPE* gradient,        \
                     const ddprun::device::TYPE* out, const float* statistics,                   \
                     const float* weight, const float* bias, long long rows, int channels,       \
                     int lanes, int packed, int tail, ddprun::device::TYPE* reaching,            \
                     float* partial) {                                                           \
    using namespace ddprun::device;                                                              \
    const Rows all = {rows, channels, lanes};                                                    \
    if (packed) {                                                                                \
      BlockGradientSums<TYPE, kPack<TYPE>, IS_GELU>(x, gradient, out, statistics, weight, bias,  \
                                                    all, tail, reaching, partial);               \
    } else {                                                                                     \
      BlockGradientSums<TYPE, 1, IS_GELU>(x, gradient, out, statistics, weight, bias, all, tail, \
                                          reaching, partial);                                    \
    }                                                                                            \
  }
#define DDPRUN_NORM_GRADIENTS_OF_TYPE(SUFFIX, TYPE)                                               \
  DDPRUN_NORM_GRADIENT_SUMS(norm_gradient_sums_##SUFFIX, TYPE, false)                             \
  DDPRUN_NORM_GRADIENT_SUMS(norm_gelu_gradient_sums_##SUFFIX, TYPE, true)                         \
  DDPRUN_KERNEL norm_input_gradient_##SUFFIX(                                                     \
      const ddprun::device::TYPE* x, const ddprun::device::TYPE* gradient,                        \
      const float* statistics, const float* sums, const float* weight, const float* bias,         \
      long long rows, int channels, int lanes, int packed, int tail, ddprun::device::TYPE* out) { \
    using namespace ddprun::device;                                                               \
    const Rows all = {rows, channels, lanes};                                                     \
    if (packed) {                                                                                 \
      InputGradient<TYPE, kPack<TYPE>>(x, gradient, statistics, sums, weight, bias, all, tail,    \
                                       out);                                                      \
    } else {                                                                                      \
      InputGradient<TYPE, 1>(x, gradient, statistics, sums, weight, bias, all, tail, out);        \
    }                                                                                             \
  }
DDPRUN_NORM_GRADIENTS_OF_TYPE(float, Float)
DDPRUN_NORM_GRADIENTS_OF_TYPE(bf16, BFloat16)
DDPRUN_NORM_GRADIENTS_OF_TYPE(fp16, Half)
