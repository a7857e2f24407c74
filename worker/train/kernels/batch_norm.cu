// SPDX-License-Identifier: Apache-2.0
// Batch norm of channels-last images (rows x channels) with what follows it: forward.
#include "worker/train/kernels/norm_steps.cuh"

namespace ddprun::device {

// The statistics of some values: their number, mean and squared distances from it.
struct Moments {
  float count;
  float mean;
  float squares;
};

// Chan's formula: no cancellation, however far the mean is from zero.
__device__ inline Moments Merge(const Moments& a, const Moments& b) {
  const float count = a.count + b.count;
  if (count == 0.0f) return a;
  const float distance = b.mean - a.mean;
  const float share = b.count / count;
  return {count, a.mean + distance * share,
          a.squares + b.squares + distance * distance * a.count * share};
}

// Each block's moments: blocks x channels means, as many squares, and blocks counts.
template <typename T, int V>
__device__ void BlockMoments(const T* __restrict__ x, const Rows& rows, float* partial) {
  __shared__ float counts[kNormThreads];
  __shared__ float means[V][kNormThreads];
  __shared__ float squares[V][kNormThreads];
  const Place<V> place(rows);
  const bool works = place.channel < rows.channels;

  // Distances from the thread's first row.
  float pivot[V] = {};
  float sum[V] = {};
  float square[V] = {};
  float count = 0.0f;
  if (works && place.row < rows.count) {
    const Pack<T, V> first = Load<T, V>(x + place.row * rows.channels + place.channel);
    for (int i = 0; i < V; ++i) pivot[i] = ToFloat(first.values[i]);
    count = static_cast<float>((rows.count - place.row + place.step - 1) / place.step);
#pragma unroll 4
    for (int64 row = place.row + place.step; row < rows.count; row += place.step) {
      const Pack<T, V> pack = Load<T, V>(x + row * rows.channels + place.channel);
      for (int i = 0; i < V; ++i) {
        const float distance = ToFloat(pack.values[i]) - pivot[i];
        sum[i] += distance;
        square[i] += distance * distance;
      }
    }
  }
  const unsigned own = threadIdx.x;
  counts[own] = count;
  for (int i = 0; i < V; ++i) {
    const float mean = count == 0.0f ? 0.0f : sum[i] / count;
    means[i][own] = pivot[i] + mean;
    const float rest = square[i] - sum[i] * mean;
    squares[i][own] = rest < 0.0f ? 0.0f : rest;
  }
  for (int half = place.lines / 2; half > 0; half /= 2) {
    __syncthreads();
    if (place.line < half) {
      const unsigned other = own + half * rows.lanes;
      Moments merged = {};
      for (int i = 0; i < V; ++i) {
        merged = Merge({counts[own], means[i][own], squares[i][own]},
                       {counts[other], means[i][other], squares[i][other]});
        means[i][own] = merged.mean;
        squares[i][own] = merged.squares;
      }
      counts[own] = merged.count;
    }
  }
  if (place.line != 0 || !works) return;
  const int64 plane = static_cast<int64>(gridDim.x) * rows.channels;
  const int64 at = static_cast<int64>(blockIdx.x) * rows.channels + place.channel;
  float mean[V];
  float rest[V];
  for (int i = 0; i < V; ++i) {
    mean[i] = means[i][own];
    rest[i] = squares[i][own];
  }
  StoreFloats<V>(partial + at, mean);
  StoreFloats<V>(partial + plane + at, rest);
  if (place.channel == 0) partial[2 * plane + blockIdx.x] = counts[own];
}

// Combines all blocks; the first thread of a column has the result. All threads of a block call it,
// those of a column with the same channel. Distances are from the first block's mean, which is near
// the others': double loses little.
__device__ inline TotalMoments Combine(const float* partial, int blocks, int channels,
                                       int channel) {
  const int64 plane = static_cast<int64>(blocks) * channels;
  const int lane = static_cast<int>(threadIdx.x) / kCombineChannels;
  const bool works = channel < channels;
  const double pivot = works ? partial[channel] : 0.0;
  double sums[3] = {};  // counts, distances, and squared distances
  if (works) {
#pragma unroll 4
    for (int block = lane; block < blocks; block += kCombineLanes) {
      const int64 at = static_cast<int64>(block) * channels + channel;
      const double count = partial[2 * plane + block];
      const double distance = partial[at] - pivot;
      sums[0] += count;
      sums[1] += count * distance;
      sums[2] += partial[plane + at] + count * distance * distance;
    }
  }
  SumColumns(sums);
  const auto [count, distance, squares] = sums;
  const double rest = squares - distance * distance / count;
  return {count, pivot + distance / count, rest < 0.0 ? 0.0 : rest};
}

template <typename T, int V, bool kIsGelu>
__device__ void Apply(const T* x, const T* shortcut, const float* statistics, const float* weight,
                      const float* bias, const Rows& rows, int tail, T* out) {
  const Place<V> place(rows);
  if (place.channel >= rows.channels) return;
  const Norm<V> norm(statistics, weight, bias, place.channel, rows.channels);
  ApplyToRows<T, V, kIsGelu>(x, shortcut, norm, rows, place, tail, out);
}

}  // namespace ddprun::device

// One result of all blocks' partial ones. Channels by blockIdx.x.
DDPRUN_KERNEL norm_statistics(const float* partial, int blocks, int channels, float eps,
                              float momentum, float* running_mean, float* running_variance,
                              long long* batches, float* statistics) {
  using namespace ddprun::device;
  const int channel = CombinedChannel();
  const TotalMoments total = Combine(partial, blocks, channels, channel);
  if (threadIdx.x < kCombineChannels && channel < channels)
    Finish(total, channel, channels, eps, {running_mean, running_variance, batches, momentum},
           statistics);
}

// For several ranks: sums of x, sums of its squares, and the count, to be added up over them.
DDPRUN_KERNEL norm_rank_sums(const float* partial, int blocks, int channels, double* sums) {
  using namespace ddprun::device;
  const int channel = CombinedChannel();
  const TotalMoments total = Combine(partial, blocks, channels, channel);
  if (threadIdx.x >= kCombineChannels || channel >= channels) return;
  sums[channel] = total.count * total.mean;
  sums[channels + channel] = total.squares + total.count * total.mean * total.mean;
  if (channel == 0) sums[2 * channels] = total.count;
}

DDPRUN_KERNEL norm_statistics_of_sums(const double* sums, int channels, float eps, float momentum,
                                      float* running_mean, float* running_variance,
                                      long long* batches, float* statistics) {
  using namespace ddprun::device;
  const int channel = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (channel >= channels) return;
  const double count = sums[2 * channels];
  const double mean = sums[channel] / count;
  const double squares = sums[channels + channel] - count * mean * mean;
  Finish({count, mean, squares < 0.0 ? 0.0 : squares}, channel, channels, eps,
         {running_mean, running_variance, batches, momentum}, statistics);
}

// For evaluation: the form of norm_statistics.
DDPRUN_KERNEL norm_running_statistics(const float* mean, const float* variance, int channels,
                                      float eps, float* statistics) {
  const int channel = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (channel >= channels) return;
  statistics[channel] = mean[channel];
  statistics[channels + channel] =
      static_cast<float>(rsqrt(static_cast<double>(variance[channel]) + eps));
}

// packed: channels are a multiple of what 16 bytes hold.
#define DDPRUN_NORM_APPLY(NAME, TYPE, IS_GELU)                                                  \
  DDPRUN_KERNEL NAME(const ddprun::device::TYPE* x, const ddprun::device::TYPE* shortcut,       \
                     const float* statistics, const float* weight, const float* bias,           \
                     long long rows, int channels, int lanes, int packed, int tail,             \
                     ddprun::device::TYPE* out) {                                               \
    using namespace ddprun::device;                                                             \
    const Rows all = {rows, channels, lanes};                                                   \
    if (packed) {                                                                               \
      Apply<TYPE, kPack<TYPE>, IS_GELU>(x, shortcut, statistics, weight, bias, all, tail, out); \
    } else {                                                                                    \
      Apply<TYPE, 1, IS_GELU>(x, shortcut, statistics, weight, bias, all, tail, out);           \
    }                                                                                           \
  }
#define DDPRUN_NORM_OF_TYPE(SUFFIX, TYPE)                                                          \
  DDPRUN_KERNEL norm_moments_##SUFFIX(const ddprun::device::TYPE* x, long long rows, int channels, \
                                      int lanes, int packed, float* partial) {                     \
    using namespace ddprun::device;                                                                \
    const Rows all = {rows, channels, lanes};                                                      \
    if (packed) {                                                                                  \
      BlockMoments<TYPE, kPack<TYPE>>(x, all, partial);                                            \
    } else {                                                                                       \
      BlockMoments<TYPE, 1>(x, all, partial);                                                      \
    }                                                                                              \
  }                                                                                                \
  DDPRUN_NORM_APPLY(norm_apply_##SUFFIX, TYPE, false)                                              \
  DDPRUN_NORM_APPLY(norm_gelu_apply_##SUFFIX, TYPE, true)
DDPRUN_NORM_OF_TYPE(float, Float)
DDPRUN_NORM_OF_TYPE(bf16, BFloat16)
DDPRUN_NORM_OF_TYPE(fp16, Half)
