// SPDX-License-Identifier: Apache-2.0
// For collectives of your own on World::group(): waits that end with the round, and many tensors in
// few messages.
#pragma once

#include <ATen/core/Tensor.h>

#include <torch/csrc/distributed/c10d/Work.hpp>

#include <vector>

#include "ddprun/world.h"

namespace ddprun {

// Until the work is done. Throws what it threw, and RoundOver if the world has ended before. When a
// connection breaks, Gloo wakes whoever receives on it, but not always whoever sends, who would
// wait for the whole timeout otherwise. With NCCL the device waits and not the host, until the
// group is aborted: World::ToHost() reads what they make.
void Await(const World& world, const c10::intrusive_ptr<c10d::Work>& work);

// The tensors of `root` become every rank's, in few messages. All ranks must call it, with tensors
// of the same shapes and types on the world's device. Throws as Await() does.
void BroadcastAll(World& world, const std::vector<at::Tensor>& tensors, int root);

}  // namespace ddprun
