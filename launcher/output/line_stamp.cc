// SPDX-License-Identifier: Apache-2.0
#include "launcher/output/line_stamp.h"

#include <algorithm>
#include <chrono>

#include "absl/strings/str_format.h"

namespace ddprun {

const std::string& LineStamp::Of(TimePoint time, absl::Time wall_time) {
  const auto since_start =
      std::chrono::duration_cast<std::chrono::milliseconds>(std::max(time, start_) - start_);
  const std::int64_t now =
      form_ == LogTime::kRelative ? since_start.count() : absl::ToUnixMillis(wall_time);
  if (now == last_) return text_;
  last_ = now;
  switch (form_) {
    case LogTime::kOff:
      text_.clear();
      break;
    case LogTime::kLocal:
      text_ = absl::FormatTime("%Y-%m-%dT%H:%M:%E3S ", wall_time, absl::LocalTimeZone());
      break;
    case LogTime::kUtc:
      text_ = absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ ", wall_time, absl::UTCTimeZone());
      break;
    case LogTime::kRelative:
      // As dmesg has it: the columns stay in line for a day.
      text_ = absl::StrFormat("%9.3f ", static_cast<double>(now) / 1000);
      break;
  }
  return text_;
}

}  // namespace ddprun
