// SPDX-License-Identifier: Apache-2.0
// A batch out of images in GPU memory: gather, crop, mirror, normalise and cast (gpu_images.h).
#include "worker/train/kernels/device.cuh"

namespace ddprun::device {

struct BatchSource {
  const unsigned char* images;  // N x padded_height x padded_width x channels
  const int64* labels;
  const int* rows;      // of four: index, first row, first column, step of columns (-1: mirrored)
  const int64* cursor;  // added to `first`; may be null
  int64 first;
  const float* mean;  // of each channel
  const float* deviation;
};

struct BatchShape {
  int count;
  int height;
  int width;
  int channels;
  int stride;  // channels of the result; those past the images' are zero
  int padded_height;
  int padded_width;
};

// Each thread makes 16 bytes of the result, which is N x height x width x stride.
template <typename T>
__device__ void MakeBatch(const BatchSource& source, const BatchShape& shape, T* out,
                          int64* out_labels) {
  const int* rows = source.rows + 4 * (source.first + (source.cursor ? *source.cursor : 0));
  const unsigned thread = blockIdx.x * blockDim.x + threadIdx.x;
  if (thread < static_cast<unsigned>(shape.count))
    out_labels[thread] = source.labels[rows[4 * thread]];

  const int total = shape.count * shape.height * shape.width * shape.stride;
  const int begin = static_cast<int>(thread) * kPack<T>;
  if (begin >= total) return;
  int channel = begin % shape.stride;
  int x = begin / shape.stride % shape.width;
  int y = begin / shape.stride / shape.width % shape.height;
  int n = begin / shape.stride / shape.width / shape.height;
  Pack<T, kPack<T>> pack;
  for (int i = 0; i < kPack<T>; ++i) {
    float value = 0.0f;
    if (channel < shape.channels && n < shape.count) {
      const int* row = rows + 4 * n;
      const int64 line = static_cast<int64>(row[0]) * shape.padded_height + row[1] + y;
      const int64 pixel = line * shape.padded_width + row[2] + x * row[3];
      const float byte = source.images[pixel * shape.channels + channel];
      // In the order and precision of normalise.cc.
      value = (byte / 255.0f - source.mean[channel]) / source.deviation[channel];
    }
    pack.values[i] = FromFloat<T>(value);
    if (++channel < shape.stride) continue;
    channel = 0;
    if (++x < shape.width) continue;
    x = 0;
    if (++y < shape.height) continue;
    y = 0;
    ++n;
  }
  if (begin + kPack<T> <= total) {
    *reinterpret_cast<Pack<T, kPack<T>>*>(out + begin) = pack;
  } else {
    for (int i = 0; begin + i < total; ++i) out[begin + i] = pack.values[i];
  }
}

}  // namespace ddprun::device

#define DDPRUN_MAKE_BATCH(NAME, TYPE)                                                            \
  extern "C" __global__ void __launch_bounds__(256)                                              \
      NAME(const unsigned char* images, const long long* labels, const int* rows,                \
           const long long* cursor, long long first, const float* mean, const float* deviation,  \
           int count, int height, int width, int channels, int stride, int padded_height,        \
           int padded_width, ddprun::device::TYPE* out, long long* out_labels) {                 \
    ddprun::device::MakeBatch<ddprun::device::TYPE>(                                             \
        {images, labels, rows, cursor, first, mean, deviation},                                  \
        {count, height, width, channels, stride, padded_height, padded_width}, out, out_labels); \
  }
DDPRUN_MAKE_BATCH(make_batch_float, Float)
DDPRUN_MAKE_BATCH(make_batch_bf16, BFloat16)
DDPRUN_MAKE_BATCH(make_batch_fp16, Half)
