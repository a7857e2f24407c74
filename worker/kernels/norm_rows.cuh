// SPDX-License-Identifier: Apache-2.0
// What the kernels of batch norm share: how threads lie over rows (pixels of channels-last images)
// and channels.
//
// A block has `lanes` columns of threads, each of V channels; its other threads take further rows.
// Sums over rows go from threads to blocks to one result, in an order that depends on nothing but
// the shape and the device: there are no atomic additions.
#pragma once

#include "worker/kernels/device.cuh"

#define DDPRUN_KERNEL extern "C" __global__ void __launch_bounds__(256)

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

__device__ inline int CombinedChannel() {
  return static_cast<int>(blockIdx.x) * kCombineChannels +
         static_cast<int>(threadIdx.x) % kCombineChannels;
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

}  // namespace ddprun::device
