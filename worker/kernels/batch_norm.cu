// SPDX-License-Identifier: Apache-2.0
// Batch norm of channels-last images (rows x channels) with what follows it.
//
// A block has `lanes` columns of threads, each of V channels; its other threads take further rows.
// Sums over rows go from threads to blocks to one result, in an order that depends on nothing but
// the shape and the device: there are no atomic additions.
#include "worker/kernels/device.cuh"

namespace ddprun::device {

constexpr int kNormThreads = 256;
constexpr int kCombineChannels = 8;  // of a block of the kernels that combine blocks' results
constexpr int kCombineLanes = kNormThreads / kCombineChannels;

// What follows the norm; NormTail of gpu_norm.h.
enum Tail : int { kNone = 0, kRelu = 1, kAddRelu = 2, kReluAdd = 3, kGelu = 4 };

struct Rows {
  int64 count;
  int channels;
  int lanes;
};

// Where a thread begins.
template <int V>
struct Place {
  __device__ explicit Place(const Rows& rows)
      : channel((static_cast<int>(blockIdx.y) * rows.lanes +
                 static_cast<int>(threadIdx.x) % rows.lanes) *
                V),
        line(static_cast<int>(threadIdx.x) / rows.lanes),
        lines(kNormThreads / rows.lanes),
        row(static_cast<int64>(blockIdx.x) * lines + line),
        step(static_cast<int64>(gridDim.x) * lines) {}

  int channel;  // its first; it has no work if that is past the last
  int line;     // among the block's threads of these channels
  int lines;
  int64 row;
  int64 step;
};

template <typename T, int V>
__device__ Pack<T, V> Load(const T* values) {
  return *reinterpret_cast<const Pack<T, V>*>(values);
}

template <typename T, int V>
__device__ void Store(T* values, const Pack<T, V>& pack) {
  *reinterpret_cast<Pack<T, V>*>(values) = pack;
}

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
  for (int i = 0; i < V; ++i) {
    partial[at + i] = means[i][own];
    partial[plane + at + i] = squares[i][own];
  }
  if (place.channel == 0) partial[2 * plane + blockIdx.x] = counts[own];
}

// The sum of a column's values, in each thread of the column.
__device__ inline double SumOfColumn(double value) {
  __shared__ double values[kNormThreads];
  const unsigned own = threadIdx.x;
  values[own] = value;
  for (int half = kCombineLanes / 2; half > 0; half /= 2) {
    __syncthreads();
    if (own < static_cast<unsigned>(half * kCombineChannels))
      values[own] += values[own + half * kCombineChannels];
  }
  __syncthreads();
  const double sum = values[own % kCombineChannels];
  __syncthreads();  // the next call writes there
  return sum;
}

struct TotalMoments {
  double count;
  double mean;
  double squares;
};

// Of all blocks. All threads of a block call it; those of a column with the same channel.
__device__ inline TotalMoments Combine(const float* partial, int blocks, int channels,
                                       int channel) {
  const int64 plane = static_cast<int64>(blocks) * channels;
  const int lane = static_cast<int>(threadIdx.x) / kCombineChannels;
  const bool works = channel < channels;
  double count = 0.0;
  double sum = 0.0;
  if (works) {
#pragma unroll 4
    for (int block = lane; block < blocks; block += kCombineLanes) {
      const double own = partial[2 * plane + block];
      count += own;
      sum += own * partial[static_cast<int64>(block) * channels + channel];
    }
  }
  count = SumOfColumn(count);
  const double mean = SumOfColumn(sum) / count;
  double squares = 0.0;
  if (works) {
#pragma unroll 4
    for (int block = lane; block < blocks; block += kCombineLanes) {
      const int64 at = static_cast<int64>(block) * channels + channel;
      const double distance = partial[at] - mean;
      squares += partial[plane + at] + partial[2 * plane + block] * distance * distance;
    }
  }
  return {count, mean, SumOfColumn(squares)};
}

__device__ inline int CombinedChannel() {
  return static_cast<int>(blockIdx.x) * kCombineChannels +
         static_cast<int>(threadIdx.x) % kCombineChannels;
}

// What training keeps of each batch.
struct Running {
  float* mean;
  float* variance;
  int64* batches;
  float momentum;
};

// statistics: means, inverse deviations, and the inverse of the count.
__device__ inline void Finish(const TotalMoments& total, int channel, int channels, float eps,
                              const Running& running, float* statistics) {
  const double variance = total.squares / total.count;
  statistics[channel] = static_cast<float>(total.mean);
  statistics[channels + channel] = static_cast<float>(rsqrt(variance + eps));
  const double momentum = running.momentum;
  running.mean[channel] =
      static_cast<float>((1.0 - momentum) * running.mean[channel] + momentum * total.mean);
  running.variance[channel] = static_cast<float>((1.0 - momentum) * running.variance[channel] +
                                                 momentum * total.squares / (total.count - 1.0));
  if (channel != 0) return;
  statistics[2 * channels] = static_cast<float>(1.0 / total.count);
  *running.batches += 1;
}

// The norm of V channels.
template <int V>
struct Norm {
  __device__ Norm(const float* statistics, const float* weight, const float* bias, int channel,
                  int channels) {
    for (int i = 0; i < V; ++i) {
      mean[i] = statistics[channel + i];
      scale[i] = statistics[channels + channel + i] * weight[channel + i];
      offset[i] = bias[channel + i];
    }
  }
  // The difference first: it costs no digits where the mean is far from zero.
  __device__ float operator()(float x, int i) const { return (x - mean[i]) * scale[i] + offset[i]; }

  float mean[V];
  float scale[V];
  float offset[V];
};

__device__ inline float Gelu(float z) { return z * 0.5f * (1.0f + erff(z * 0.70710678f)); }

__device__ inline float GeluSlope(float z) {
  const float below = 0.5f * (1.0f + erff(z * 0.70710678f));
  return below + z * expf(-0.5f * z * z) * 0.39894228f;
}

// As ATen's: not a number stays one.
__device__ inline float Relu(float z) { return z <= 0.0f ? 0.0f : z; }

template <typename T, int V, bool kIsGelu>
__device__ void Apply(const T* __restrict__ x, const T* __restrict__ shortcut,
                      const float* statistics, const float* weight, const float* bias,
                      const Rows& rows, int tail, T* __restrict__ out) {
  const Place<V> place(rows);
  if (place.channel >= rows.channels) return;
  const Norm<V> norm(statistics, weight, bias, place.channel, rows.channels);
  const bool adds = tail == kAddRelu || tail == kReluAdd;
#pragma unroll 2
  for (int64 row = place.row; row < rows.count; row += place.step) {
    const int64 at = row * rows.channels + place.channel;
    const Pack<T, V> pack = Load<T, V>(x + at);
    Pack<T, V> added = {};
    if (!kIsGelu && adds) added = Load<T, V>(shortcut + at);
    Pack<T, V> result;
    for (int i = 0; i < V; ++i) {
      float z = norm(ToFloat(pack.values[i]), i);
      if (kIsGelu) {
        z = Gelu(z);
      } else {
        if (tail == kAddRelu) z += ToFloat(added.values[i]);
        if (tail != kNone) z = Relu(z);
        if (tail == kReluAdd) z += ToFloat(added.values[i]);
      }
      result.values[i] = FromFloat<T>(z);
    }
    Store<T, V>(out + at, result);
  }
}

// Of a backward: what autograd gives, the forward's input and, for kAddRelu, its output.
template <typename T>
struct Given {
  const T* x;
  const T* gradient;
  const T* out;
};

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

#define DDPRUN_KERNEL extern "C" __global__ void __launch_bounds__(256)

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
  DDPRUN_NORM_APPLY(norm_gelu_apply_##SUFFIX, TYPE, true)                                          \
  DDPRUN_NORM_GRADIENT_SUMS(norm_gradient_sums_##SUFFIX, TYPE, false)                              \
  DDPRUN_NORM_GRADIENT_SUMS(norm_gelu_gradient_sums_##SUFFIX, TYPE, true)                          \
  DDPRUN_KERNEL norm_input_gradient_##SUFFIX(                                                      \
      const ddprun::device::TYPE* x, const ddprun::device::TYPE* gradient,                         \
      const float* statistics, const float* sums, const float* weight, const float* bias,          \
      long long rows, int channels, int lanes, int packed, int tail, ddprun::device::TYPE* out) {  \
    using namespace ddprun::device;                                                                \
    const Rows all = {rows, channels, lanes};                                                      \
    if (packed) {                                                                                  \
      InputGradient<TYPE, kPack<TYPE>>(x, gradient, statistics, sums, weight, bias, all, tail,     \
                                       out);                                                       \
    } else {                                                                                       \
      InputGradient<TYPE, 1>(x, gradient, statistics, sums, weight, bias, all, tail, out);         \
    }                                                                                              \
  }
DDPRUN_NORM_OF_TYPE(float, Float)
DDPRUN_NORM_OF_TYPE(bf16, BFloat16)
DDPRUN_NORM_OF_TYPE(fp16, Half)
