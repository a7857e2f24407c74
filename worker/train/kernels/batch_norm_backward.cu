// SPDX-License-Identifier: Apache-2.0
// Batch norm in training with what follows it: backward.
#include "worker/train/kernels/norm_steps.cuh"

namespace ddprun::device {

// Each block's sums of the gradients that reach the norm, and of them times x's distance from the
// mean. `more`, if it is there, is another part of the gradient. Where they are costly or must be
// returned (kAddRelu: the shortcut's), they are kept in `reaching`.
template <typename T, int V, bool kIsGelu>
__device__ void BlockGradientSums(const T* __restrict__ x, const T* __restrict__ gradient,
                                  const T* __restrict__ more, const T* __restrict__ out,
                                  const float* statistics, const float* weight, const float* bias,
                                  const Rows& rows, int tail, T* __restrict__ reaching,
                                  float* partial) {
  __shared__ float sums[V][kNormThreads];
  __shared__ float products[V][kNormThreads];
  const Place<V> place(rows);
  const bool works = place.channel < rows.channels;
  float sum[V] = {};
  float product[V] = {};
  if (works) {
    const Norm<V> norm(statistics, weight, bias, place.channel, rows.channels);
    AddGradients<T, V, kIsGelu>(x, gradient, more, out, norm, rows, place, tail, reaching, sum,
                                product);
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
    sum[i] = sums[i][own];
    product[i] = products[i][own];
  }
  StoreFloats<V>(partial + at, sum);
  StoreFloats<V>(partial + plane + at, product);
}

template <typename T, int V>
__device__ void GridInputGradient(const T* x, const T* gradient, const float* statistics,
                                  const float* sums, const float* weight, const float* bias,
                                  const Rows& rows, int tail, T* out) {
  const Place<V> place(rows);
  if (place.channel < rows.channels)
    InputGradient<T, V>(x, gradient, statistics, sums, weight, bias, rows, place, tail, out);
}

}  // namespace ddprun::device

// sums: of the gradients, which is the bias' gradient; of them times normalised x, the weight's.
DDPRUN_KERNEL norm_gradients(const float* partial, int blocks, int channels,
                             const float* statistics, float* sums) {
  using namespace ddprun::device;
  const int channel = CombinedChannel();
  const int64 plane = static_cast<int64>(blocks) * channels;
  double both[2] = {};
  if (channel < channels) {
#pragma unroll 4
    for (int block = static_cast<int>(threadIdx.x) / kCombineChannels; block < blocks;
         block += kCombineLanes) {
      const int64 at = static_cast<int64>(block) * channels + channel;
      both[0] += partial[at];
      both[1] += partial[plane + at];
    }
  }
  SumColumns(both);
  if (threadIdx.x >= kCombineChannels || channel >= channels) return;
  sums[channel] = static_cast<float>(both[0]);
  sums[channels + channel] = static_cast<float>(both[1] * statistics[channels + channel]);
}

// packed: channels are a multiple of what 16 bytes hold.
#define DDPRUN_NORM_GRADIENT_SUMS(NAME, TYPE, IS_GELU)                                           \
  DDPRUN_KERNEL NAME(const ddprun::device::TYPE* x, const ddprun::device::TYPE* gradient,        \
                     const ddprun::device::TYPE* more, const ddprun::device::TYPE* out,          \
                     const float* statistics, const float* weight, const float* bias,            \
                     long long rows, int channels, int lanes, int packed, int tail,              \
                     ddprun::device::TYPE* reaching, float* partial) {                           \
    using namespace ddprun::device;                                                              \
    const Rows all = {rows, channels, lanes};                                                    \
    if (packed) {                                                                                \
      BlockGradientSums<TYPE, kPack<TYPE>, IS_GELU>(x, gradient, more, out, statistics, weight,  \
                                                    bias, all, tail, reaching, partial);         \
    } else {                                                                                     \
      BlockGradientSums<TYPE, 1, IS_GELU>(x, gradient, more, out, statistics, weight, bias, all, \
                                          tail, reaching, partial);                              \
    }                                                                                            \
  }
#define DDPRUN_NORM_GRADIENTS_OF_TYPE(SUFFIX, TYPE)                                                \
  DDPRUN_NORM_GRADIENT_SUMS(norm_gradient_sums_##SUFFIX, TYPE, false)                              \
  DDPRUN_NORM_GRADIENT_SUMS(norm_gelu_gradient_sums_##SUFFIX, TYPE, true)                          \
  DDPRUN_KERNEL norm_input_gradient_##SUFFIX(                                                      \
      const ddprun::device::TYPE* x, const ddprun::device::TYPE* gradient,                         \
      const float* statistics, const float* sums, const float* weight, const float* bias,          \
      long long rows, int channels, int lanes, int packed, int tail, ddprun::device::TYPE* out) {  \
    using namespace ddprun::device;                                                                \
    const Rows all = {rows, channels, lanes};                                                      \
    if (packed) {                                                                                  \
      GridInputGradient<TYPE, kPack<TYPE>>(x, gradient, statistics, sums, weight, bias, all, tail, \
                                           out);                                                   \
    } else {                                                                                       \
      GridInputGradient<TYPE, 1>(x, gradient, statistics, sums, weight, bias, all, tail, out);     \
    }                                                                                              \
  }
DDPRUN_NORM_GRADIENTS_OF_TYPE(float, Float)
DDPRUN_NORM_GRADIENTS_OF_TYPE(bf16, BFloat16)
DDPRUN_NORM_GRADIENTS_OF_TYPE(fp16, Half)
