// SPDX-License-Identifier: Apache-2.0
// The default generators of random numbers, which dropout uses.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace ddprun {

// Of this rank's generator for `device`.
at::Tensor RandomState(at::Device device);
void SetRandomState(at::Device device, const at::Tensor& state);

// Where no state is known for `rank`: a seed of this place of the training, for all devices.
void SeedRandomState(std::uint64_t seed, std::int64_t step, int rank);

}  // namespace ddprun
