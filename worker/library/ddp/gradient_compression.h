// SPDX-License-Identifier: Apache-2.0
// Communication hooks of the reducer that average gradients with a process group, in 32 or 16 bits.
#pragma once

#include <torch/csrc/distributed/c10d/comm.hpp>

#include <memory>

#include "ddprun/detail/choices.h"
#include "ddprun/world.h"
#include "worker/library/ddp/gradient_meter.h"

namespace ddprun {

// Averages by the world's process group. With 16 bits a gradient is divided by the number of ranks
// (so that fp16 does not overflow in the sum), rounded, summed, and widened again: torch's
// fp16_compress_hook and bf16_compress_hook, but divided before it is rounded. `meter` counts.
std::unique_ptr<c10d::CommHookInterface> MakeGroupHook(World& world, GradientFormat format,
                                                       std::shared_ptr<GradientMeter> meter);

}  // namespace ddprun
