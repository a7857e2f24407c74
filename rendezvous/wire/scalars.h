// SPDX-License-Identifier: Apache-2.0
// Durations, text, status codes and ranges of ranks in messages. What comes from the wire is cut to
// the limits and made printable here.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "proto/ddprun.pb.h"
#include "rendezvous/values/session_types.h"

namespace ddprun {

google::protobuf::Duration ToDuration(std::chrono::milliseconds from);
// Clamped to one year, so that adding it to a time cannot overflow.
std::chrono::milliseconds ToMilliseconds(const google::protobuf::Duration& from);

// Strings of the wire must be UTF-8, and a worker's text need not be: each byte that is not part of
// a well-formed sequence becomes '?'.
std::string ToUtf8(const std::string& text);

// UNKNOWN for a code that Abseil does not have.
absl::StatusCode StatusCodeOf(int code);

// Ranges of ranks as messages have them: the first and the last rank of each, in turn. Reads at
// most `ranges_max` ranges.
void AddRanges(const std::vector<RankRange>& ranges,
               google::protobuf::RepeatedField<std::int32_t>* to);
std::vector<RankRange> RangesOf(const google::protobuf::RepeatedField<std::int32_t>& from,
                                std::size_t ranges_max);

}  // namespace ddprun
