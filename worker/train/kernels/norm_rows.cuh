// SPDX-License-Identifier: Apache-2.0
// What the kernels of batch norm share: how threads lie over rows (pixels of channels-last images)
// and channels.
//
// A block has `lanes` columns of threads, each of V channels; its other threads take further rows.
// Sums over rows go from threads to blocks to one result, in an order that depends on nothing but
// the shape and the device: there are no atomic additions.
#pragma once

#include "worker/train/kernels/device.cuh"

#define DDPRUN_KERNEL extern "C" __global__ void __launch_bounds__(256)

namespace ddprun::device {

constexpr int kNormThreads = 256;
constexpr int kCombineChannels = 4;  // of a block of the kernels that combine blocks' results
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
  // For a block that has V channels to itself.
  __device__ Place()
      : channel(static_cast<int>(blockIdx.x) * V),
        line(static_cast<int>(threadIdx.x)),
        lines(static_cast<int>(blockDim.x)),
        row(line),
        step(lines) {}

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

// V numbers, from an address that is a multiple of 16 bytes where V is one of four. One by one they
// would take a thread as long as its first row.
template <int V>
__device__ void LoadFloats(const float* from, float (&to)[V]) {
  constexpr int kWidth = V % 4 == 0 ? 4 : 1;
  for (int i = 0; i < V; i += kWidth) {
    const Pack<float, kWidth> pack = Load<float, kWidth>(from + i);
    for (int j = 0; j < kWidth; ++j) to[i + j] = pack.values[j];
  }
}

template <int V>
__device__ void StoreFloats(float* to, const float (&from)[V]) {
  constexpr int kWidth = V % 4 == 0 ? 4 : 1;
  for (int i = 0; i < V; i += kWidth) {
    Pack<float, kWidth> pack;
    for (int j = 0; j < kWidth; ++j) pack.values[j] = from[i + j];
    Store<float, kWidth>(to + i, pack);
  }
}

// Each of N values becomes its sum over the threads of a column, in the column's first thread. Once
// in a kernel.
template <int N>
__device__ void SumColumns(double (&values)[N]) {
  __shared__ double all[N][kNormThreads];
  const unsigned own = threadIdx.x;
  for (int i = 0; i < N; ++i) all[i][own] = values[i];
  for (int half = kCombineLanes / 2; half > 0; half /= 2) {
    __syncthreads();
    if (own < static_cast<unsigned>(half * kCombineChannels)) {
      for (int i = 0; i < N; ++i) all[i][own] += all[i][own + half * kCombineChannels];
    }
  }
  for (int i = 0; i < N; ++i) values[i] = all[i][own];
}

__device__ inline int CombinedChannel() {
  return static_cast<int>(blockIdx.x) * kCombineChannels +
         static_cast<int>(threadIdx.x) % kCombineChannels;
}

// The norm of V channels.
template <int V>
struct Norm {
  __device__ Norm(const float* statistics, const float* weight, const float* bias, int channel,
                  int channels) {
    LoadFloats<V>(statistics + channel, mean);
    LoadFloats<V>(bias + channel, offset);
    float inverse[V];
    LoadFloats<V>(statistics + channels + channel, inverse);
    LoadFloats<V>(weight + channel, scale);
    for (int i = 0; i < V; ++i) scale[i] *= inverse[i];
  }
  // The difference first: it costs no digits where the mean is far from zero.
  __device__ float operator()(float x, int i) const { return (x - mean[i]) * scale[i] + offset[i]; }

  float mean[V];
  float scale[V];
  float offset[V];
};

}  // namespace ddprun::device
