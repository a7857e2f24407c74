// SPDX-License-Identifier: Apache-2.0
// Costs of the parts of a model, to choose where to cut it.
#pragma once

#include <functional>
#include <vector>

#include "worker/models/models.h"

namespace ddprun {

// Seconds of forward and backward of each part on `images`, the best of a few. Leaves parameters,
// gradients, buffers and random numbers as they were. `synchronize` waits for the device.
std::vector<double> MeasuredCosts(ImageModel& model, const at::Tensor& images,
                                  const std::function<void()>& synchronize);

// The same from numbers alone, so that each run cuts alike: multiplications (a convolution's
// weights count once for each pixel of the part's output, once for all places where a part uses
// them) and activations, weighted by how long either takes on a CPU.
std::vector<double> EstimatedCosts(ImageModel& model, const at::Tensor& images);

}  // namespace ddprun
