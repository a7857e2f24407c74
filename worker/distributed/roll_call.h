// SPDX-License-Identifier: Apache-2.0
// Before a process group is built: is everybody here, once, and of one mind about the size of the
// world? Backends only time out on that, each in its own words.
#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>

namespace ddprun {

// Returns when ranks 0 to world_size - 1 have called it. Throws std::runtime_error on every rank
// that is there, with the same sentence: who did not come in time, who came twice, or whose
// WORLD_SIZE is another.
void CallRoll(c10d::Store& store, int rank, int world_size, std::chrono::milliseconds timeout);

}  // namespace ddprun
