// SPDX-License-Identifier: Apache-2.0
// Costs of the parts of a model, to choose where to cut it.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "worker/train/models/models.h"

namespace ddprun {

// Seconds of forward and backward of each part on `images`, the best of a few. Leaves parameters,
// gradients, buffers and random numbers as they were. `synchronize` waits for the device.
std::vector<double> MeasuredCosts(ImageModel& model, const at::Tensor& images,
                                  const std::function<void()>& synchronize);

// The same from numbers alone, so that each run cuts alike: multiplications (a convolution's
// weights count once for each pixel of the part's output, once for all places where a part uses
// them) and activations, weighted by how long either takes on a CPU.
std::vector<double> EstimatedCosts(ImageModel& model, const at::Tensor& images);

// Cuts the parts, in their order, into `stages` runs of at least one part each, so that the dearest
// run costs as little as can be; of the cuts that do, the one whose earlier runs are the shorter
// ones, since an earlier stage holds more micro-batches' activations. Gives the first part of each
// stage. There must be at least as many parts as stages, and no cost may be negative.
std::vector<std::size_t> BalancedCuts(const std::vector<double>& costs, std::size_t stages);

}  // namespace ddprun
