// SPDX-License-Identifier: Apache-2.0
// The mean over ranks, as a loop over floats.
#pragma once

#include <cstddef>
#include <vector>

namespace ddprun {

// Elements [begin, end) of each of `ranks` become the sum over `ranks` of element * factor. Each
// product and each sum is rounded, in the order of the ranks: the bits depend on nothing else, and
// for two ranks they are those of Python's DDP over Gloo.
void ScaleAndSum(const std::vector<float*>& ranks, std::size_t begin, std::size_t end,
                 float factor);

}  // namespace ddprun
