// SPDX-License-Identifier: Apache-2.0
// Limits of what peers may hold of a service or an agent, with the reason for their sizes; the
// others of this room are in limits.h.
#pragma once

#include <chrono>
#include <cstddef>

#include "rendezvous/base/limits.h"

namespace ddprun {

// Handshakes at the same time (see kHandshakesMax) of peers whose ClientHello shows that they have
// the run's secret (hello_tag.h), and of those with the same tag. Strangers take none of these.
inline constexpr std::size_t kMemberHandshakesMax = 256;
inline constexpr std::size_t kHandshakesPerMemberMax = 8;
// While others wait, the oldest handshake that is older than this is closed. A handshake and the
// first call take two round trips and some milliseconds.
inline constexpr std::chrono::milliseconds kHandshakePatience{1000};

// The headers of one call, as they are sent, and in how many frames (frame_guard.h).
inline constexpr std::size_t kHeaderBlockBytesMax = 2 * kHeaderBytesMax;
inline constexpr std::size_t kHeaderFramesMax = 16;
// Calls that begin on one connection, and calls that are reset, those of all its streams at once.
inline constexpr int kCallsAtOnceMax = 4 * kStreamsPerConnectionMax;
inline constexpr int kCallsPerSecondMax = 1000;
inline constexpr int kResetsAtOnceMax = kStreamsPerConnectionMax;
inline constexpr int kResetsPerSecondMax = 100;

// A message that a stream has taken keeps this much of its room for the next one.
inline constexpr std::size_t kKeptMessageBytes = 256u << 10;

// A message on an agent's socket is large above this. The large ones that are under way have this
// much together; others wait until there is room again, and for so long at most for one that
// stalls.
inline constexpr std::size_t kLargeFrameBytes = 64u << 10;
inline constexpr std::size_t kLargeFramesBytesMax = 32u << 20;
inline constexpr std::chrono::seconds kLargeFrameTimeout{5};

// Who may watch what happens in a run without what its workers say (see kWatchesMax), which costs
// nobody anything. Above either limit the oldest watch of the address that has most is ended.
inline constexpr std::size_t kQuietWatchesMax = 256;

// Of what workers do in a second, in their own words: no machine does more.
inline constexpr double kRateMax = 1e12;

// Each holds a request for metrics until it is whole, for so long at most.
inline constexpr std::size_t kScrapeThreads = 16;
inline constexpr std::chrono::milliseconds kScrapeTimeout{500};

}  // namespace ddprun
