// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <vector>

#include "ddprun/distributed_data_parallel.h"

namespace ddprun {

// Whether a reducer of these parameters that fills its first bucket up to limits[0] bytes, the
// second one up to limits[1] and so on (the last limit is that of all further ones) makes this
// layout of the order in which it names them. False for whatever names one twice or not at all.
bool IsLayoutOf(const std::vector<at::Tensor>& parameters, const std::vector<std::size_t>& limits,
                const BucketLayout& layout);

}  // namespace ddprun
