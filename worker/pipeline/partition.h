// SPDX-License-Identifier: Apache-2.0
// Chooses where a model is cut into stages. A pure function.
#pragma once

#include <cstddef>
#include <vector>

namespace ddprun {

// Cuts the parts, in their order, into `stages` runs of at least one part each, so that the dearest
// run costs as little as can be; of the cuts that do, the one whose earlier runs are the shorter
// ones, since an earlier stage holds more micro-batches' activations. Gives the first part of each
// stage. There must be at least as many parts as stages, and no cost may be negative.
std::vector<std::size_t> BalancedCuts(const std::vector<double>& costs, std::size_t stages);

}  // namespace ddprun
