// SPDX-License-Identifier: Apache-2.0
// Checks, before a process group is built, that every rank joined exactly once with the same
// WORLD_SIZE and the same settings, and names those that did not. Backends would only time out,
// each with its own message, or train with different settings.
#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "ddprun/world.h"

namespace ddprun {

// Returns when ranks 0 to world_size - 1 have called it. Throws std::runtime_error on every rank
// that is there, with the same sentence: which rank did not come in time, came twice, or has
// another WORLD_SIZE or another fact than rank 0.
void CallRoll(c10d::Store& store, int rank, int world_size, std::chrono::milliseconds timeout,
              const SharedFacts& facts = {});

// After the roll call: rank 0 decides by all ranks' texts, in their order, and every rank returns
// what it decided. An exception of `decide` is a std::runtime_error with its sentence on every
// rank. Once with each `name`.
using Decide = std::function<std::string(const std::vector<std::string>& texts)>;
std::string DecideTogether(c10d::Store& store, int rank, int world_size, const std::string& name,
                           const std::string& own, const Decide& decide);

// How a rank's facts differ from rank 0's: "--lr is 0.2 on rank 3, but 0.1 on rank 0", the first
// few of them. Empty if they do not. Pure.
std::string Disagreement(const SharedFacts& rank_zero, int rank, const SharedFacts& facts);

}  // namespace ddprun
