// SPDX-License-Identifier: Apache-2.0
// A 2x2 max-pool (stride 2, odd rows and columns left out) in the passes of the batch norm behind
// it: forward's first pass reads the pool's input and writes the pooled values, one byte of each
// that says which of the four it was, and the moments of batch_norm.cu; backward's last writes the
// gradient of the pool's input.
//
// A thread takes 16 bytes of channels, the same of each row (pooled pixel) that it visits.
#include "worker/train/kernels/device.cuh"

namespace ddprun::device::max_pool {

constexpr int kThreadsMax = 256;

struct Shape {
  int rows;
  int channels;
  int height;  // of the pool's input
  int width;
};

template <typename T>
using Channels = Pack<T, kPack<T>>;
template <typename T>
using Places = Pack<unsigned char, kPack<T>>;

// The rows and channels of a thread.
template <typename T>
struct Part {
  __device__ explicit Part(int channels)
      : channel(static_cast<int>(threadIdx.x) % (channels / kPack<T>)*kPack<T>),
        line(static_cast<int>(threadIdx.x) / (channels / kPack<T>)),
        lines(static_cast<int>(blockDim.x) / (channels / kPack<T>)),
        row(static_cast<int>(blockIdx.x) * lines + line),
        step(static_cast<int>(gridDim.x) * lines) {}

  int channel;
  int line;
  int lines;  // of the block
  int row;
  int step;
};

// Where the window of a row begins in the pool's input.
__device__ inline int64 WindowOf(const Shape& shape, int row) {
  const int down = shape.height / 2;
  const int right = shape.width / 2;
  const int64 line = static_cast<int64>(row / right / down) * shape.height + row / right % down * 2;
  return (line * shape.width + row % right * 2) * shape.channels;
}

// As ATen's max_pool2d: the first of equal ones, and NaN before all others.
template <typename T>
__device__ inline Channels<T> MaxOf(const T* window, const Shape& shape, Places<T>& places) {
  Channels<T> best = *reinterpret_cast<const Channels<T>*>(window);
  places = {};
  for (int i = 1; i < 4; ++i) {
    const int64 pixel = static_cast<int64>(i / 2) * shape.width + i % 2;
    const auto other = *reinterpret_cast<const Channels<T>*>(window + pixel * shape.channels);
    for (int c = 0; c < kPack<T>; ++c) {
      const float value = ToFloat(other.values[c]);
      if (!(value > ToFloat(best.values[c])) && value == value) continue;
      best.values[c] = other.values[c];
      places.values[c] = static_cast<unsigned char>(i);
    }
  }
  return best;
}

// Writes pooled values and their places, and each block's moments as batch_norm.cu's BlockMoments()
// does: blocks x channels means, as many sums of squared distances from them, and blocks counts.
template <typename T>
__device__ void PoolMoments(const T* x, const Shape& shape, T* pooled, unsigned char* places,
                            float* partial) {
  __shared__ float sums[2][kThreadsMax * kPack<T>];
  __shared__ float pivots[kThreadsMax * kPack<T>];
  const Part<T> part(shape.channels);
  const int begin = static_cast<int>(blockIdx.x) * part.lines;
  const T* own = x + part.channel;
  // Distances from the block's first row: no cancellation where the mean is far from zero.
  Places<T> place;
  const Channels<T> pivot = MaxOf<T>(own + WindowOf(shape, begin), shape, place);
  float sum[kPack<T>] = {};
  float square[kPack<T>] = {};
  for (int row = part.row; row < shape.rows; row += part.step) {
    const Channels<T> values = MaxOf<T>(own + WindowOf(shape, row), shape, place);
    const int64 at = static_cast<int64>(row) * shape.channels + part.channel;
    *reinterpret_cast<Channels<T>*>(pooled + at) = values;
    *reinterpret_cast<Places<T>*>(places + at) = place;
    for (int c = 0; c < kPack<T>; ++c) {
      const float distance = ToFloat(values.values[c]) - ToFloat(pivot.values[c]);
      sum[c] += distance;
      square[c] = fmaf(distance, distance, square[c]);
    }
  }
  for (int c = 0; c < kPack<T>; ++c) {
    const int channel = part.channel + c;
    sums[0][part.line * shape.channels + channel] = sum[c];
    sums[1][part.line * shape.channels + channel] = square[c];
    if (part.line == 0) pivots[channel] = ToFloat(pivot.values[c]);
  }
  __syncthreads();
  int count = 0;  // of the block's rows
  for (int first = begin; first < shape.rows; first += part.step)
    count += shape.rows - first < part.lines ? shape.rows - first : part.lines;
  const int64 plane = static_cast<int64>(gridDim.x) * shape.channels;
  for (int channel = static_cast<int>(threadIdx.x); channel < shape.channels;
       channel += static_cast<int>(blockDim.x)) {
    float total = 0.0f;
    float squares = 0.0f;
    for (int line = 0; line < part.lines; ++line) {
      total += sums[0][line * shape.channels + channel];
      squares += sums[1][line * shape.channels + channel];
    }
    const float mean = total / static_cast<float>(count);
    const float rest = squares - total * mean;
    const int64 at = static_cast<int64>(blockIdx.x) * shape.channels + channel;
    partial[at] = pivots[channel] + mean;
    partial[plane + at] = rest < 0.0f ? 0.0f : rest;
  }
  if (threadIdx.x == 0) partial[2 * plane + blockIdx.x] = static_cast<float>(count);
}

// To the four pixels of a window, of which one was the largest, and to those at its right and below
// it that belong to no window, as the sides are odd.
template <typename T>
__device__ void Unpool(const Shape& shape, int row, int channel, const Channels<T>& gradient,
                       const Places<T>& places, T* out) {
  const int down = shape.height / 2;
  const int right = shape.width / 2;
  const int high = row / right % down == down - 1 ? shape.height - 2 * (down - 1) : 2;
  const int wide = row % right == right - 1 ? shape.width - 2 * (right - 1) : 2;
  T* window = out + WindowOf(shape, row) + channel;
  for (int y = 0; y < high; ++y) {
    for (int x = 0; x < wide; ++x) {
      Channels<T> pixel;
      for (int c = 0; c < kPack<T>; ++c) {
        const bool largest = y < 2 && x < 2 && places.values[c] == 2 * y + x;
        pixel.values[c] = largest ? gradient.values[c] : FromFloat<T>(0.0f);
      }
      T* at = window + (static_cast<int64>(y) * shape.width + x) * shape.channels;
      *reinterpret_cast<Channels<T>*>(at) = pixel;
    }
  }
}

// batch_norm.cu's InputGradient() of the pooled values, past the pool.
template <typename T>
__device__ void PoolInputGradient(const T* pooled, const T* gradient, const float* statistics,
                                  const float* sums, const float* weight, const Shape& shape,
                                  const unsigned char* places, T* out) {
  const Part<T> part(shape.channels);
  // (gradient - mean of them - (value - mean) * slope) * scale
  float mean[kPack<T>];
  float scale[kPack<T>];
  float mean_gradient[kPack<T>];
  float slope[kPack<T>];
  const float inverse_count = statistics[2 * shape.channels];
  for (int c = 0; c < kPack<T>; ++c) {
    const int channel = part.channel + c;
    const float inverse = statistics[shape.channels + channel];
    mean[c] = statistics[channel];
    scale[c] = inverse * weight[channel];
    mean_gradient[c] = sums[channel] * inverse_count;
    slope[c] = sums[shape.channels + channel] * inverse_count * inverse;
  }
  for (int row = part.row; row < shape.rows; row += part.step) {
    const int64 at = static_cast<int64>(row) * shape.channels + part.channel;
    const auto values = *reinterpret_cast<const Channels<T>*>(pooled + at);
    auto pack = *reinterpret_cast<const Channels<T>*>(gradient + at);
    for (int c = 0; c < kPack<T>; ++c) {
      const float distance = ToFloat(values.values[c]) - mean[c];
      const float centred = ToFloat(pack.values[c]) - mean_gradient[c] - distance * slope[c];
      pack.values[c] = FromFloat<T>(centred * scale[c]);
    }
    const auto own_places = *reinterpret_cast<const Places<T>*>(places + at);
    Unpool<T>(shape, row, part.channel, pack, own_places, out);
  }
}

}  // namespace ddprun::device::max_pool

#define DDPRUN_MAX_POOL(SUFFIX, TYPE)                                                              \
  extern "C" __global__ void __launch_bounds__(256) pool_moments_##SUFFIX(                         \
      const ddprun::device::TYPE* x, int rows, int channels, int height, int width,                \
      ddprun::device::TYPE* pooled, unsigned char* places, float* partial) {                       \
    ddprun::device::max_pool::PoolMoments<ddprun::device::TYPE>(                                   \
        x, {rows, channels, height, width}, pooled, places, partial);                              \
  }                                                                                                \
  extern "C" __global__ void __launch_bounds__(256) pool_input_gradient_##SUFFIX(                  \
      const ddprun::device::TYPE* pooled, const ddprun::device::TYPE* gradient,                    \
      const float* statistics, const float* sums, const float* weight, int rows, int channels,     \
      int height, int width, const unsigned char* places, ddprun::device::TYPE* out) {             \
    ddprun::device::max_pool::PoolInputGradient<ddprun::device::TYPE>(                             \
        pooled, gradient, statistics, sums, weight, {rows, channels, height, width}, places, out); \
  }
DDPRUN_MAX_POOL(float, Float)
DDPRUN_MAX_POOL(bf16, BFloat16)
DDPRUN_MAX_POOL(fp16, Half)
