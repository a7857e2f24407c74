// SPDX-License-Identifier: Apache-2.0
// A worker's progress report: a datagram to the unix socket at DDPRUN_NOTIFY_SOCKET with KEY=VALUE
// lines as in sd_notify(3), so that any language can send it in a line or two:
//   STEP=12         the current step
//   STEPS=1000      all steps of the program, STEP being the last one at its end
//   EPOCH=1
//   RATE=310.5      of this worker alone, per second
//   UNIT=images
//   LOSS=0.41       of this worker's last batch; any number, or nan
//   ACCURACY=0.93   of the last evaluation, from 0 to 1
//   GPU_MEMORY=4194304   bytes of the GPU's memory that it holds
//   SECTION=data    current activity: any name; the name of a collective (all_reduce, barrier)
//   means
//                   that the worker waits for others
//   WAITS=57 all_reduce 4194304 float32 0   the collective that it is in: number, name, bytes and
//                   type (both "-" if not known), process group; empty: none
//   WAITS=-         it goes from one collective to the next: no place is valid any more
//   LAST=56 all_reduce 0   the last completed one of a process group, or with bytes and type as in
//                   WAITS; a line for each group, or several for the last ones of it
//   TIMES=training 12.5,waiting 0.31   seconds that this process has spent in each class of time
//                   (rank_time.h), in all; those that it does not name: 0
//   DOING=waiting   the class of time that it is in since then
//   SLOW=2.1        it needs so many times as long for a step as its peers; 0: no longer
//   DAMAGED=1       so often its memory was found to be damaged
//   KEEP=1         it can be kept when its round breaks (round_message.h, as the next two)
//   LEFT=7         it has left round 7
//   ERROR=text     why it has left by itself
//   NOTICES=1      it reads notices of preemption
//   SAVED=3        it has saved for the notice of that number: it needs no more time
//   WATCH=0        its next message may come at any time: silence is no hang; LAST stays valid
// A missing line leaves the last report of that key valid, except for WAITS, LAST and WATCH, which
// are valid until the next message (WATCH: until the next sign of progress). Other keys are
// ignored. Any message, even an empty one, is a sign of progress, unless it has WAITS, LAST or
// NOTICES and nothing else.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "proto/collective.h"
#include "proto/rank_time.h"

namespace ddprun {

inline constexpr char kNotifySocketVariable[] = "DDPRUN_NOTIFY_SOCKET";

// Where a worker reads notices, given its DDPRUN_NOTIFY_SOCKET.
inline std::string NoticeSocketPath(const std::string& notify_socket) {
  return notify_socket + ".notices";
}

// The reader cuts longer messages and longer names.
inline constexpr std::size_t kProgressMessageBytesMax = 4096;
inline constexpr std::size_t kProgressNameBytesMax = 128;
inline constexpr std::size_t kProgressErrorBytesMax = 512;

struct ProgressMessage {
  std::optional<std::int64_t> step;
  std::optional<std::int64_t> steps;
  std::optional<std::int64_t> epoch;
  std::optional<double> rate;
  std::optional<std::string> unit;
  std::optional<double> loss;  // infinite: it is not finite
  std::optional<double> accuracy;
  std::optional<std::int64_t> gpu_memory;
  std::optional<std::string> section;
  std::optional<CollectivePlace> place;
  std::optional<RankTime> times;
  std::optional<TimeClass> doing;
  std::optional<double> slow;
  std::optional<std::int64_t> damaged;
  std::optional<bool> can_be_kept;
  std::optional<std::uint64_t> left_round;
  std::optional<std::string> error;
  std::optional<std::uint64_t> saved_notice;
  bool moves_on = false;  // from one collective to the next: no place is valid any more
  bool hears_notices = false;
  bool pauses = false;  // silence is no hang until the next sign of progress
  // False: it only reports where it waits, or that it does not any more, or that it reads notices.
  bool goes_on = true;
  bool operator==(const ProgressMessage&) const = default;
};

std::string ToText(const ProgressMessage& message);

// Ignores values that cannot be parsed, such as a step that is not a number or below 0.
ProgressMessage ParseProgress(std::string_view text);

// It reports nothing but that it reads notices.
inline bool OnlyHears(const ProgressMessage& message) {
  return !message.goes_on && !message.place.has_value() && !message.moves_on;
}

// Updates `message` with what `later` reports.
void Merge(const ProgressMessage& later, ProgressMessage& message);

}  // namespace ddprun
