// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/wire/scalars.h"

#include <algorithm>
#include <vector>

namespace ddprun {

using std::chrono::milliseconds;

google::protobuf::Duration ToDuration(milliseconds from) {
  google::protobuf::Duration to;
  to.set_seconds(from.count() / 1000);
  to.set_nanos(static_cast<std::int32_t>(from.count() % 1000) * 1'000'000);
  return to;
}

milliseconds ToMilliseconds(const google::protobuf::Duration& from) {
  constexpr std::int64_t kSecondsMax = 366LL * 24 * 3600;
  const std::int64_t seconds = std::clamp<std::int64_t>(from.seconds(), -kSecondsMax, kSecondsMax);
  return milliseconds(seconds * 1000 + from.nanos() / 1'000'000);
}

std::string ToUtf8(const std::string& text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size();) {
    const auto lead = static_cast<unsigned char>(text[i]);
    const std::size_t length = lead < 0x80                   ? 1
                               : lead >= 0xC2 && lead < 0xE0 ? 2
                               : (lead & 0xF0) == 0xE0       ? 3
                               : lead >= 0xF0 && lead < 0xF5 ? 4
                                                             : 0;
    bool good = length > 0 && i + length <= text.size();
    for (std::size_t k = 1; good && k < length; ++k) {
      good = (static_cast<unsigned char>(text[i + k]) & 0xC0) == 0x80;
    }
    if (good && length == 3) {
      const auto second = static_cast<unsigned char>(text[i + 1]);
      good = !(lead == 0xE0 && second < 0xA0) && !(lead == 0xED && second >= 0xA0);
    }
    if (good && length == 4) {
      const auto second = static_cast<unsigned char>(text[i + 1]);
      good = !(lead == 0xF0 && second < 0x90) && !(lead == 0xF4 && second >= 0x90);
    }
    out.append(good ? text.substr(i, length) : "?");
    i += good ? length : 1;
  }
  return out;
}

absl::StatusCode StatusCodeOf(int code) {
  const bool known = code > 0 && code <= static_cast<int>(absl::StatusCode::kUnauthenticated);
  return known ? static_cast<absl::StatusCode>(code) : absl::StatusCode::kUnknown;
}

void AddRanges(const std::vector<RankRange>& ranges,
               google::protobuf::RepeatedField<std::int32_t>* to) {
  for (const RankRange& range : ranges) {
    to->Add(range.first);
    to->Add(range.last);
  }
}

std::vector<RankRange> RangesOf(const google::protobuf::RepeatedField<std::int32_t>& from,
                                std::size_t ranges_max) {
  std::vector<RankRange> ranges;
  const int bounds = std::min(from.size(), 2 * static_cast<int>(ranges_max));
  for (int i = 0; i + 1 < bounds; i += 2) ranges.push_back({from[i], from[i + 1]});
  return ranges;
}

}  // namespace ddprun
