// SPDX-License-Identifier: Apache-2.0
#include "launcher/runs/attach_stream.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"

namespace ddprun {

std::string ToLine(const OutputPlace& place) {
  return absl::StrFormat("%020d %08d\n", place.position, place.within);
}

std::optional<OutputPlace> ParseOutputPlace(absl::string_view line) {
  const std::vector<absl::string_view> words =
      absl::StrSplit(line, absl::ByAnyChar(" \n"), absl::SkipEmpty());
  OutputPlace place;
  if (words.size() != 2 || !absl::SimpleAtoi(words[0], &place.position) ||
      !absl::SimpleAtoi(words[1], &place.within) || place.within > kFrameBytesMax) {
    return std::nullopt;
  }
  return place;
}

void AttachStream::Begin() {
  parser_.Clear();
  began_ = false;
  says_begin_ = false;
}

absl::StatusOr<std::optional<OutputFrame>> AttachStream::Next() {
  while (true) {
    absl::StatusOr<std::optional<OutputFrame>> frame = parser_.Next();
    if (!frame.ok()) {
      return absl::DataLossError(absl::StrCat(
          "the other end is no ddpctl of this version: it sent ", frame.status().message()));
    }
    if (!frame->has_value()) return frame;
    const std::string& bytes = (*frame)->bytes;
    switch ((*frame)->kind) {
      case FrameKind::kOut:
      case FrameKind::kErr: {
        last_size_ = bytes.size();
        const std::size_t skipped = std::min<std::size_t>(place_.within, bytes.size());
        return OutputFrame{(*frame)->kind, bytes.substr(skipped)};
      }
      case FrameKind::kGap: {
        std::uint64_t gone = 0;
        if (absl::SimpleAtoi(bytes, &gone)) place_ = {place_.position + gone, 0};
        return frame;
      }
      case FrameKind::kRecord: {
        absl::StatusOr<RunRecord> record = ParseRunRecord(bytes);
        if (!record.ok()) return record.status();
        record_ = *std::move(record);
        ended_ = std::exchange(began_, true);
        break;
      }
      case FrameKind::kPlace:
        if (!placed_ && !from_start_) place_ = ParseOutputPlace(bytes).value_or(OutputPlace());
        placed_ = true;
        says_begin_ = true;
        break;
      case FrameKind::kAlive:
      case FrameKind::kService:
      case FrameKind::kBegun:
      case FrameKind::kEvent:
      case FrameKind::kSample:
      case FrameKind::kStep:
      case FrameKind::kVerdict:
      case FrameKind::kVerdictJson:
        break;
    }
  }
}

void AttachStream::Shown(std::size_t bytes) {
  place_.within += bytes;
  if (place_.within >= last_size_) place_ = {place_.position + kFrameHeaderBytes + last_size_, 0};
}

std::optional<std::string> AttachStream::TakeLine() {
  if (!std::exchange(says_begin_, false)) return std::nullopt;
  return ToLine(place_);
}

}  // namespace ddprun
