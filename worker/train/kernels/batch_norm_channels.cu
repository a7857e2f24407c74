// SPDX-License-Identifier: Apache-2.0
// Batch norm in training of images with few pixels, where three launches one after the other would
// take longer than what they do: a block has the channels of 16 bytes to itself, and reads their
// rows as often as it must. Means and variances are this rank's alone.
#include "worker/train/kernels/norm_steps.cuh"

#define DDPRUN_CHANNELS_KERNEL extern "C" __global__ void __launch_bounds__(512)

namespace ddprun::device {

constexpr int kChannelThreads = 512;
constexpr int kUnroll = 4;  // few threads have to keep many loads under way

constexpr int kRow = kChannelThreads + 1;  // columns of threads then read other banks

// Each of N values becomes its sum over the block's threads, in all of them, in one order. `all` is
// shared memory for N * kRow numbers.
template <int N>
__device__ void SumOverThreads(float (&values)[N], float* all) {
  constexpr int kParts = kChannelThreads / N;
  const int own = static_cast<int>(threadIdx.x);
  for (int i = 0; i < N; ++i) all[i * kRow + own] = values[i];
  __syncthreads();
  float* const row = all + own % N * kRow;
  const int part = own / N;
  float sum = 0.0f;
  for (int other = part; other < kChannelThreads; other += kParts) sum += row[other];
  __syncthreads();
  row[part] = sum;
  for (int half = kParts / 2; half > 0; half /= 2) {
    __syncthreads();
    if (part < half) row[part] += row[part + half];
  }
  __syncthreads();
  for (int i = 0; i < N; ++i) values[i] = all[i * kRow];
  __syncthreads();  // the next call writes there
}

template <typename T, int V>
__device__ void ForwardOfChannels(const T* x, const T* shortcut, const Rows& rows, float eps,
                                  const Running& running, const float* weight, const float* bias,
                                  int tail, T* out, float* statistics) {
  __shared__ float all[2 * V * kRow];
  const Place<V> place;
  // Distances are from the mean of the first rows, which is as near to that of all as a sample's.
  float pivot[V] = {};
  if (place.row < rows.count) {
    const Pack<T, V> first = Load<T, V>(x + place.row * rows.channels + place.channel);
    for (int i = 0; i < V; ++i) pivot[i] = ToFloat(first.values[i]);
  }
  SumOverThreads<V>(pivot, all);
  const auto sample = static_cast<float>(rows.count < place.lines ? rows.count : place.lines);
  for (int i = 0; i < V; ++i) pivot[i] /= sample;
  float sums[2 * V] = {};  // of distances, and of their squares
#pragma unroll 8
  for (int64 row = place.row; row < rows.count; row += place.step) {
    const Pack<T, V> pack = Load<T, V>(x + row * rows.channels + place.channel);
    for (int i = 0; i < V; ++i) {
      const float distance = ToFloat(pack.values[i]) - pivot[i];
      sums[i] += distance;
      sums[V + i] += distance * distance;
    }
  }
  SumOverThreads<2 * V>(sums, all);
  const auto count = static_cast<double>(rows.count);
  for (int i = 0; i < V; ++i) {
    if (static_cast<int>(threadIdx.x) != i) continue;
    const double distance = static_cast<double>(sums[i]) / count;
    const double squares = static_cast<double>(sums[V + i]) - count * distance * distance;
    Finish({count, static_cast<double>(pivot[i]) + distance, squares < 0.0 ? 0.0 : squares},
           place.channel + i, rows.channels, eps, running, statistics);
  }
  __syncthreads();
  const Norm<V> norm(statistics, weight, bias, place.channel, rows.channels);
  ApplyToRows<T, V, false, kUnroll>(x, shortcut, norm, rows, place, tail, out);
}

// sums: of the gradients, which is the bias' gradient; of them times normalised x, the weight's.
template <typename T, int V>
__device__ void BackwardOfChannels(const T* x, const T* gradient, const T* more, const T* out,
                                   const float* statistics, const float* weight, const float* bias,
                                   const Rows& rows, int tail, T* reaching, float* sums,
                                   T* x_gradient) {
  __shared__ float all[2 * V * kRow];
  const Place<V> place;
  const Norm<V> norm(statistics, weight, bias, place.channel, rows.channels);
  float sum[V] = {};
  float product[V] = {};
  AddGradients<T, V, false>(x, gradient, more, out, norm, rows, place, tail, reaching, sum,
                            product);
  float both[2 * V];
  for (int i = 0; i < V; ++i) {
    both[i] = sum[i];
    both[V + i] = product[i];
  }
  SumOverThreads<2 * V>(both, all);
  for (int i = 0; i < V; ++i) {
    if (static_cast<int>(threadIdx.x) != i) continue;
    const int channel = place.channel + i;
    sums[channel] = both[i];
    sums[rows.channels + channel] = both[V + i] * statistics[rows.channels + channel];
  }
  __syncthreads();
  const bool keeps = tail == kAddRelu;
  InputGradient<T, V, kUnroll>(x, keeps ? reaching : gradient, statistics, sums, weight, bias, rows,
                               place, tail == kRelu || tail == kReluAdd ? kRelu : kNone,
                               x_gradient);
}

}  // namespace ddprun::device

#define DDPRUN_NORM_CHANNELS(SUFFIX, TYPE)                                                        \
  DDPRUN_CHANNELS_KERNEL norm_channels_##SUFFIX(                                                  \
      const ddprun::device::TYPE* x, const ddprun::device::TYPE* shortcut, long long rows,        \
      int channels, float eps, float momentum, float* running_mean, float* running_variance,      \
      long long* batches, const float* weight, const float* bias, int tail,                       \
      ddprun::device::TYPE* out, float* statistics) {                                             \
    using namespace ddprun::device;                                                               \
    ForwardOfChannels<TYPE, kPack<TYPE>>(x, shortcut, {rows, channels, 1}, eps,                   \
                                         {running_mean, running_variance, batches, momentum},     \
                                         weight, bias, tail, out, statistics);                    \
  }                                                                                               \
  DDPRUN_CHANNELS_KERNEL norm_channels_gradient_##SUFFIX(                                         \
      const ddprun::device::TYPE* x, const ddprun::device::TYPE* gradient,                        \
      const ddprun::device::TYPE* more, const ddprun::device::TYPE* out, const float* statistics, \
      const float* weight, const float* bias, long long rows, int channels, int tail,             \
      ddprun::device::TYPE* reaching, float* sums, ddprun::device::TYPE* x_gradient) {            \
    using namespace ddprun::device;                                                               \
    BackwardOfChannels<TYPE, kPack<TYPE>>(x, gradient, more, out, statistics, weight, bias,       \
                                          {rows, channels, 1}, tail, reaching, sums, x_gradient); \
  }
DDPRUN_NORM_CHANNELS(float, Float)
DDPRUN_NORM_CHANNELS(bf16, BFloat16)
DDPRUN_NORM_CHANNELS(fp16, Half)
