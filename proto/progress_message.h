// SPDX-License-Identifier: Apache-2.0
// What a worker says of its progress: a datagram to the unix socket at DDPRUN_NOTIFY_SOCKET, of
// lines KEY=VALUE as in sd_notify(3), so that every language can say it in a line or two:
//   STEP=12         that it is in
//   EPOCH=1
//   RATE=310.5      of this worker alone, a second
//   UNIT=images
//   SECTION=data    what it does: a name of its own choice; a collective's (all_reduce, barrier)
//                   means that it waits for others
//   WAITS=57 all_reduce 4194304 float32 0   the collective that it is in: number, name, bytes and
//                   type (both "-" if not known), process group; nothing: in none
//   LAST=56 all_reduce 0   the last that was done; a line for each process group
// A line that is not there leaves the last word on it as it was, but for WAITS and LAST, which hold
// until the next message. Other keys mean nothing yet. Any message, also an empty one, says that
// the worker goes on, unless it has WAITS or LAST and nothing else.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "proto/collective.h"

namespace ddprun {

inline constexpr char kNotifySocketVariable[] = "DDPRUN_NOTIFY_SOCKET";

// A longer message is cut by the reader; longer names too.
inline constexpr std::size_t kProgressMessageBytesMax = 1024;
inline constexpr std::size_t kProgressNameBytesMax = 128;

struct ProgressMessage {
  std::optional<std::int64_t> step;
  std::optional<std::int64_t> epoch;
  std::optional<double> rate;
  std::optional<std::string> unit;
  std::optional<std::string> section;
  std::optional<CollectivePlace> place;
  bool goes_on = true;  // false: it only says where it waits
  bool operator==(const ProgressMessage&) const = default;
};

std::string ToText(const ProgressMessage& message);

// What cannot be read (a step that is no number, or below 0) is as if it were not there.
ProgressMessage ParseProgress(std::string_view text);

// `later` says more, or other things, than `message` did.
void Merge(const ProgressMessage& later, ProgressMessage& message);

}  // namespace ddprun
