// SPDX-License-Identifier: Apache-2.0
// SGD of many tensors in one launch, which also writes the weights of mixed precision
// (optimizer/fused_sgd.h).
#include "worker/train/kernels/device.cuh"
#include "worker/train/kernels/sgd_tensors.cuh"

namespace ddprun::device::sgd {

struct SgdNumbers {
  float rate;
  float momentum;
  float decay;
  bool nesterov;
};

// One value: torch/optim/sgd.py without dampening, each line rounded once.
__device__ inline float SgdValue(float parameter, float gradient, float& velocity,
                                 const SgdNumbers& numbers) {
  float step = fmaf(numbers.decay, parameter, gradient);
  velocity = fmaf(numbers.momentum, velocity, step);
  step = numbers.nesterov ? fmaf(numbers.momentum, velocity, step) : velocity;
  return fmaf(-numbers.rate, step, parameter);
}

template <typename T>
__device__ void SgdChunk(const SgdTensor& tensor, const SgdNumbers& numbers, int64 begin,
                         int64 end) {
  T* cast = static_cast<T*>(tensor.cast);
  // 16 bytes of floats at a time, where all of them begin at a multiple of that.
  using Floats = Pack<float, 4>;
  const auto bits = reinterpret_cast<unsigned long long>(tensor.parameter) |
                    reinterpret_cast<unsigned long long>(tensor.gradient) |
                    reinterpret_cast<unsigned long long>(tensor.velocity) |
                    reinterpret_cast<unsigned long long>(cast);
  const int64 packs = bits % sizeof(Floats) == 0 ? (end - begin) / 4 : 0;
  for (int64 i = threadIdx.x; i < packs; i += blockDim.x) {
    const int64 at = begin + 4 * i;
    Floats parameter = *reinterpret_cast<const Floats*>(tensor.parameter + at);
    const Floats gradient = *reinterpret_cast<const Floats*>(tensor.gradient + at);
    Floats velocity{};
    if (tensor.velocity) velocity = *reinterpret_cast<const Floats*>(tensor.velocity + at);
    Pack<T, 4> low;
    for (int j = 0; j < 4; ++j) {
      parameter.values[j] =
          SgdValue(parameter.values[j], gradient.values[j], velocity.values[j], numbers);
      low.values[j] = FromFloat<T>(parameter.values[j]);
    }
    *reinterpret_cast<Floats*>(tensor.parameter + at) = parameter;
    if (tensor.velocity) *reinterpret_cast<Floats*>(tensor.velocity + at) = velocity;
    if (cast) *reinterpret_cast<Pack<T, 4>*>(cast + at) = low;
  }
  for (int64 i = begin + 4 * packs + threadIdx.x; i < end; i += blockDim.x) {
    float velocity = tensor.velocity ? tensor.velocity[i] : 0.0f;
    const float parameter = SgdValue(tensor.parameter[i], tensor.gradient[i], velocity, numbers);
    tensor.parameter[i] = parameter;
    if (tensor.velocity) tensor.velocity[i] = velocity;
    if (cast) cast[i] = FromFloat<T>(parameter);
  }
}

// Each block takes kSgdChunk values of one tensor. `skip` (null: 0): with 1 nothing changes.
template <typename T>
__device__ void SgdStep(const SgdTensors& tensors, const float* rate, const float* skip,
                        float momentum, float decay, bool nesterov) {
  if (skip != nullptr && *skip != 0.0f) return;
  int index = 0;
  while (static_cast<int>(blockIdx.x) >= tensors.block_end[index]) ++index;
  const SgdTensor& tensor = tensors.tensor[index];
  const int first = index == 0 ? 0 : tensors.block_end[index - 1];
  const int64 begin = (static_cast<int64>(blockIdx.x) - first) * kSgdChunk;
  const int64 end = begin + kSgdChunk < tensor.size ? begin + kSgdChunk : tensor.size;
  SgdChunk<T>(tensor, {*rate, momentum, decay, nesterov}, begin, end);
}

}  // namespace ddprun::device::sgd

// The type is that of the casts.
#define DDPRUN_SGD_STEP(NAME, TYPE)                                                          \
  extern "C" __global__ void __launch_bounds__(256)                                          \
      NAME(ddprun::device::SgdTensors tensors, const float* rate, const float* skip,         \
           float momentum, float decay, bool nesterov) {                                     \
    ddprun::device::sgd::SgdStep<ddprun::device::TYPE>(tensors, rate, skip, momentum, decay, \
                                                       nesterov);                            \
  }
DDPRUN_SGD_STEP(sgd_step_float, Float)
DDPRUN_SGD_STEP(sgd_step_bf16, BFloat16)
DDPRUN_SGD_STEP(sgd_step_fp16, Half)
