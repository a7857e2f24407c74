// SPDX-License-Identifier: Apache-2.0
// What Muon does to filters before and after their matrices are made orthogonal
// (optimizer/fused_muon.h): momentum, and the step with the weights of mixed precision.
#include "worker/train/kernels/device.cuh"
#include "worker/train/kernels/muon_tensors.cuh"

namespace ddprun::device::muon {

// The matrices of a launch lie one after another; that of more filters than numbers is transposed.
struct Matrices {
  int rows;
  int columns;
};

// What a block works on.
struct Chunk {
  __device__ explicit Chunk(const MuonTensors& tensors) {
    const int block = static_cast<int>(blockIdx.x);
    index = 0;
    while (block >= tensors.block_end[index]) ++index;
    const MuonTensor& tensor = tensors.tensor[index];
    const int first = index == 0 ? 0 : tensors.block_end[index - 1];
    const int size = tensor.filters * tensor.numbers;
    begin = (block - first) * kMuonChunk;
    end = begin + kMuonChunk < size ? begin + kMuonChunk : size;
  }

  int index;
  int begin;
  int end;
};

// Where a tensor's `i`-th value lies in its matrix.
__device__ inline int64 PlaceOf(const MuonTensor& tensor, int i, const Matrices& matrices) {
  const int filter = i / tensor.numbers;
  const int number = i % tensor.numbers;
  const bool transposed = tensor.filters > tensor.numbers;
  return transposed ? static_cast<int64>(number) * matrices.columns + filter
                    : static_cast<int64>(filter) * matrices.columns + number;
}

// Velocities, and Nesterov's directions to the matrices. With `skip` (null: 0) of 1 nothing.
template <typename T>
__device__ void Directions(const MuonTensors& tensors, float momentum, const float* skip,
                           const Matrices& shape, T* matrices) {
  if (skip != nullptr && *skip != 0.0f) return;
  const Chunk chunk(tensors);
  const MuonTensor& tensor = tensors.tensor[chunk.index];
  T* matrix = matrices + static_cast<int64>(chunk.index) * shape.rows * shape.columns;
  for (int i = chunk.begin + static_cast<int>(threadIdx.x); i < chunk.end;
       i += static_cast<int>(blockDim.x)) {
    const float gradient = tensor.gradient[i];
    const float velocity = fmaf(momentum, tensor.velocity[i], gradient);
    tensor.velocity[i] = velocity;
    matrix[PlaceOf(tensor, i, shape)] = FromFloat<T>(fmaf(momentum, velocity, gradient));
  }
}

// Weights scaled to a norm of the root of the number of filters, less the orthogonal matrix times
// the learning rate.
template <typename T>
__device__ void Update(const MuonTensors& tensors, const float* rate, const float* skip,
                       const Matrices& shape, const T* matrices, MuonCast cast) {
  if (skip != nullptr && *skip != 0.0f) return;
  const Chunk chunk(tensors);
  const MuonTensor& tensor = tensors.tensor[chunk.index];
  const T* matrix = matrices + static_cast<int64>(chunk.index) * shape.rows * shape.columns;
  const float step = *rate;
  const float scale = sqrtf(static_cast<float>(tensor.filters)) / *tensor.norm;
  for (int i = chunk.begin + static_cast<int>(threadIdx.x); i < chunk.end;
       i += static_cast<int>(blockDim.x)) {
    const float update = ToFloat(matrix[PlaceOf(tensor, i, shape)]) * -step;
    const float weight = fmaf(tensor.weight[i], scale, update);
    tensor.weight[i] = weight;
    if (tensor.cast == nullptr) continue;
    if (cast == MuonCast::kBFloat16)
      static_cast<BFloat16*>(tensor.cast)[i] = FromFloat<BFloat16>(weight);
    if (cast == MuonCast::kHalf) static_cast<Half*>(tensor.cast)[i] = FromFloat<Half>(weight);
  }
}

}  // namespace ddprun::device::muon

// The type is that of the matrices.
#define DDPRUN_MUON(SUFFIX, TYPE)                                                            \
  extern "C" __global__ void __launch_bounds__(256) muon_directions_##SUFFIX(                \
      ddprun::device::MuonTensors tensors, float momentum, const float* skip, int rows,      \
      int columns, ddprun::device::TYPE* matrices) {                                         \
    ddprun::device::muon::Directions<ddprun::device::TYPE>(tensors, momentum, skip,          \
                                                           {rows, columns}, matrices);       \
  }                                                                                          \
  extern "C" __global__ void __launch_bounds__(256) muon_update_##SUFFIX(                    \
      ddprun::device::MuonTensors tensors, const float* rate, const float* skip, int rows,   \
      int columns, const ddprun::device::TYPE* matrices, ddprun::device::MuonCast cast) {    \
    ddprun::device::muon::Update<ddprun::device::TYPE>(tensors, rate, skip, {rows, columns}, \
                                                       matrices, cast);                      \
  }
DDPRUN_MUON(float, Float)
DDPRUN_MUON(bf16, BFloat16)
DDPRUN_MUON(fp16, Half)
