// SPDX-License-Identifier: Apache-2.0
// What ddprun and ddprun-stacks agree on, which share no code.
#pragma once

namespace ddprun {

// Begins the part of a process, followed by its number.
inline constexpr char kStacksProcessPrefix[] = "=== process ";

}  // namespace ddprun
