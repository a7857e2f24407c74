// SPDX-License-Identifier: Apache-2.0
#include "worker/optimizer/sgd_kernel.h"

#include <cmath>

#include "worker/base/for_each_cpu.h"

namespace ddprun {
namespace {

// Where torch's vectorised kernels round once, so do these: add(x, alpha) is an FMA, mul_ and add_
// are two operations (hence -ffp-contract=off for this file).
DDPRUN_FOR_EACH_CPU
void Plain(float* __restrict parameter, const float* __restrict gradient, std::int64_t size,
           float rate, float weight_decay) {
  for (std::int64_t i = 0; i < size; ++i) {
    const float g = std::fma(weight_decay, parameter[i], gradient[i]);
    parameter[i] = std::fma(-rate, g, parameter[i]);
  }
}

DDPRUN_FOR_EACH_CPU
void WithMomentum(float* __restrict parameter, const float* __restrict gradient,
                  float* __restrict velocity, std::int64_t size, float rate, float weight_decay,
                  float momentum) {
  for (std::int64_t i = 0; i < size; ++i) {
    const float g = std::fma(weight_decay, parameter[i], gradient[i]);
    const float decayed = velocity[i] * momentum;
    const float v = decayed + g;
    velocity[i] = v;
    parameter[i] = std::fma(-rate, v, parameter[i]);
  }
}

DDPRUN_FOR_EACH_CPU
void WithNesterov(float* __restrict parameter, const float* __restrict gradient,
                  float* __restrict velocity, std::int64_t size, float rate, float weight_decay,
                  float momentum) {
  for (std::int64_t i = 0; i < size; ++i) {
    const float g = std::fma(weight_decay, parameter[i], gradient[i]);
    const float decayed = velocity[i] * momentum;
    const float v = decayed + g;
    velocity[i] = v;
    parameter[i] = std::fma(-rate, std::fma(momentum, v, g), parameter[i]);
  }
}

}  // namespace

void SgdStep(float* parameter, const float* gradient, float* velocity, std::int64_t size,
             const SgdNumbers& numbers) {
  if (numbers.momentum == 0) {
    Plain(parameter, gradient, size, numbers.rate, numbers.weight_decay);
  } else if (numbers.nesterov) {
    WithNesterov(parameter, gradient, velocity, size, numbers.rate, numbers.weight_decay,
                 numbers.momentum);
  } else {
    WithMomentum(parameter, gradient, velocity, size, numbers.rate, numbers.weight_decay,
                 numbers.momentum);
  }
}

}  // namespace ddprun
