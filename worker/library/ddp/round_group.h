// SPDX-License-Identifier: Apache-2.0
// The process group that c10d::Reducer is given. Its own broadcasts, by which ranks agree on
// rebuilt buckets, are waited for by it: those waits must end with the round as well.
#pragma once

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "ddprun/world.h"

namespace ddprun {

// The world's own group, if that has no interrupt, or NCCL aborts what waits.
c10::intrusive_ptr<c10d::ProcessGroup> GroupForReducer(const World& world);

}  // namespace ddprun
