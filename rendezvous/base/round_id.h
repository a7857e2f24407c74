// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace ddprun {

// Number of a rendezvous round, from 1. A type of its own so that it is not mixed up with ranks and
// counts.
enum class RoundId : std::uint64_t {};
inline constexpr RoundId kNoRound{0};
constexpr std::uint64_t ToNumber(RoundId round) { return static_cast<std::uint64_t>(round); }

}  // namespace ddprun
