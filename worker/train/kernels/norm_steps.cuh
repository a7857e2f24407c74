// SPDX-License-Identifier: Apache-2.0
// What a thread of batch norm's kernels does with its rows: the norm and what follows it, forward
// and backward.
#pragma once

#include "worker/train/kernels/norm_rows.cuh"

namespace ddprun::device {

struct TotalMoments {
  double count;
  double mean;
  double squares;
};

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

__device__ inline float Gelu(float z) { return z * 0.5f * (1.0f + erff(z * 0.70710678f)); }

// As ATen's: not a number stays one.
__device__ inline float Relu(float z) { return z <= 0.0f ? 0.0f : z; }

// kUnroll: rows whose loads are under way at a time.
template <typename T, int V, bool kIsGelu, int kUnroll = 2>
__device__ void ApplyToRows(const T* __restrict__ x, const T* __restrict__ shortcut,
                            const Norm<V>& norm, const Rows& rows, const Place<V>& place, int tail,
                            T* __restrict__ out) {
  const bool adds = tail == kAddRelu || tail == kReluAdd;
#pragma unroll kUnroll
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
  // Tests the number that forward gave, after rounding.
  const float alive = tail == kAddRelu ? out : ToFloat(FromFloat<T>(norm(x, i)));
  return alive <= 0.0f ? 0.0f : gradient;
}

// Adds a thread's gradients that reach the norm, and them times x's distance from the mean. Where
// they are costly or must be returned (kAddRelu: the shortcut's), they are kept in `reaching`.
// `more`, if it is there, is another part of the gradient.
template <typename T, int V, bool kIsGelu>
__device__ void AddGradients(const T* __restrict__ x, const T* __restrict__ gradient,
                             const T* __restrict__ more, const T* __restrict__ out,
                             const Norm<V>& norm, const Rows& rows, const Place<V>& place, int tail,
                             T* __restrict__ reaching, float (&sum)[V], float (&product)[V]) {
#pragma unroll 2
  for (int64 row = place.row; row < rows.count; row += place.step) {
    const int64 at = row * rows.channels + place.channel;
    const Pack<T, V> pack = Load<T, V>(x + at);
    const Pack<T, V> given = Load<T, V>(gradient + at);
    Pack<T, V> made = {};
    if (!kIsGelu && tail == kAddRelu) made = Load<T, V>(out + at);
    Pack<T, V> added = {};
    if (!kIsGelu && more != nullptr) added = Load<T, V>(more + at);
    Pack<T, V> kept;
    for (int i = 0; i < V; ++i) {
      const float value = ToFloat(pack.values[i]);
      const float g =
          Reaching<T, V, kIsGelu>(norm, value, ToFloat(given.values[i]) + ToFloat(added.values[i]),
                                  ToFloat(made.values[i]), tail, i);
      kept.values[i] = FromFloat<T>(g);
      sum[i] += g;
      product[i] += g * (value - norm.mean[i]);
    }
    if (kIsGelu || tail == kAddRelu) Store<T, V>(reaching + at, kept);
  }
}

// `sums` are those of all blocks (and ranks): of gradients, and of gradients times normalised x.
// kRelu: of `gradient` only what passes the ReLU reaches the norm.
template <typename T, int V, int kUnroll = 2>
__device__ void InputGradient(const T* __restrict__ x, const T* __restrict__ gradient,
                              const float* statistics, const float* sums, const float* weight,
                              const float* bias, const Rows& rows, const Place<V>& place, int tail,
                              T* __restrict__ out) {
  const int channels = rows.channels;
  const Norm<V> norm(statistics, weight, bias, place.channel, channels);
  const float inverse_count = statistics[2 * channels];
  float mean_gradient[V];
  float slope[V];
  float inverse[V];
  LoadFloats<V>(sums + place.channel, mean_gradient);
  LoadFloats<V>(sums + channels + place.channel, slope);
  LoadFloats<V>(statistics + channels + place.channel, inverse);
  for (int i = 0; i < V; ++i) {
    mean_gradient[i] *= inverse_count;
    slope[i] *= inverse_count * inverse[i];
  }
#pragma unroll kUnroll
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
