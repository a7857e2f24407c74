// SPDX-License-Identifier: Apache-2.0
// The time before a line of a worker: --log-time. Pure.
#pragma once

#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "launcher/options/options.h"
#include "rendezvous/values/session_types.h"

namespace ddprun {

class LineStamp {
 public:
  LineStamp(LogTime form, TimePoint start) : form_(form), start_(start) {}

  bool wanted() const { return form_ != LogTime::kOff; }

  // "2026-11-25T14:03:12.123 ", with Z in UTC, or "    12.345 ": the time at which the line came,
  // on both clocks. Valid until the next call.
  const std::string& Of(TimePoint time, absl::Time wall_time);

 private:
  const LogTime form_;
  const TimePoint start_;
  std::int64_t last_ = -1;  // milliseconds, of text_: many lines come within one
  std::string text_;
};

}  // namespace ddprun
