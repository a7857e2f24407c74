// SPDX-License-Identifier: Apache-2.0
// Determines which ranks of other nodes this one cannot connect to, and why. Used only when the
// connections of a backend have not been made in time.
#pragma once

#include <chrono>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "proto/worker_env.h"

namespace ddprun {

// How long FindUnreachable() takes at most.
inline constexpr std::chrono::milliseconds kPeerProbeTime{3000};

// All ranks call it at about the same time. Each listens at its address for the others, says so in
// the store and tries some of them. "rank 1 at 10.0.0.2 (host b): no answer, as where a firewall
// drops packets" of the first one that is not reached; empty if all answered, or none could be
// asked.
std::string FindUnreachable(const c10::intrusive_ptr<c10d::Store>& store, const WorkerEnv& env);

}  // namespace ddprun
