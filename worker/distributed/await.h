// SPDX-License-Identifier: Apache-2.0
// Waits for collectives that end with the round. When a connection breaks, Gloo wakes whoever
// receives on it, but not always whoever sends, who would wait for the whole timeout. With NCCL the
// device waits and not the host, until the group is aborted: World::ToHost() reads what they make.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <torch/csrc/distributed/c10d/Work.hpp>

#include <vector>

#include "ddprun/world.h"

namespace ddprun {

// Until the work is done. Throws what it threw, and RoundOver if the world has ended before.
void Await(const World& world, const c10::intrusive_ptr<c10d::Work>& work);

// The same future, or one that fails with RoundOver when the world ends.
c10::intrusive_ptr<c10::ivalue::Future> UntilRoundEnds(
    const World& world, const c10::intrusive_ptr<c10::ivalue::Future>& future);

// The tensors of `root` become every rank's, in few messages.
void BroadcastAll(World& world, const std::vector<at::Tensor>& tensors, int root);

}  // namespace ddprun
