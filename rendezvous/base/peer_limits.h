// SPDX-License-Identifier: Apache-2.0
// Limits of the resources that a peer may hold in a service or an agent, with the reason for their
// sizes. The other limits of this room are in limits.h.
#pragma once

#include <chrono>
#include <cstddef>

#include "rendezvous/base/limits.h"

namespace ddprun {

// Concurrent handshakes (see kHandshakesMax) of peers whose ClientHello proves that they have the
// run's secret (hello_tag.h), and of those with the same tag. Other peers do not use these.
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

// A stream keeps this much memory of a message for the next one.
inline constexpr std::size_t kKeptMessageBytes = 256u << 10;

// A message on an agent's socket is large above kLargeFrameBytes. All incomplete large messages
// together may have kLargeFramesBytesMax; others wait for room. One that stalls for longer than
// kLargeFrameTimeout while others wait is closed.
inline constexpr std::size_t kLargeFrameBytes = 64u << 10;
inline constexpr std::size_t kLargeFramesBytesMax = 32u << 20;
inline constexpr std::chrono::seconds kLargeFrameTimeout{5};

// Watches of a run's events without its workers' output (see kWatchesMax), which cost the nodes
// nothing. Above either limit the oldest watch of the address that has the most is ended.
inline constexpr std::size_t kQuietWatchesMax = 256;

// The highest rate that a worker may report, per second.
inline constexpr double kRateMax = 1e12;

// Threads that each hold a request for metrics until it is complete, for kScrapeTimeout at most.
inline constexpr std::size_t kScrapeThreads = 16;
inline constexpr std::chrono::milliseconds kScrapeTimeout{500};

}  // namespace ddprun
