// SPDX-License-Identifier: Apache-2.0
#include "launcher/runs/output_frames.h"

#include <cstdint>

#include "absl/strings/str_cat.h"

namespace ddprun {
namespace {

// A kind that is missing here is a warning of the compiler, and so an error.
bool IsKnown(FrameKind kind) {
  switch (kind) {
    case FrameKind::kOut:
    case FrameKind::kErr:
    case FrameKind::kGap:
    case FrameKind::kRecord:
    case FrameKind::kPlace:
    case FrameKind::kAlive:
    case FrameKind::kService:
    case FrameKind::kBegun:
    case FrameKind::kEvent:
    case FrameKind::kSample:
    case FrameKind::kStep:
    case FrameKind::kVerdict:
    case FrameKind::kVerdictJson:
      return true;
  }
  return false;
}

std::size_t LengthIn(absl::string_view header) {
  std::size_t length = 0;
  for (const char byte : header.substr(1, 3))
    length = length << 8 | static_cast<std::uint8_t>(byte);
  return length;
}

}  // namespace

std::string EncodeFrame(FrameKind kind, absl::string_view bytes) {
  std::string frame(1, static_cast<char>(kind));
  for (const int shift : {16, 8, 0}) frame += static_cast<char>(bytes.size() >> shift & 0xFF);
  frame.append(bytes.data(), bytes.size());
  return frame;
}

absl::StatusOr<std::optional<OutputFrame>> FrameParser::Next() {
  const absl::string_view rest = absl::string_view(buffer_).substr(begin_);
  if (rest.empty()) return std::nullopt;
  if (!IsKnown(static_cast<FrameKind>(rest.front()))) {
    return absl::DataLossError(absl::StrCat("a frame of kind ", static_cast<int>(rest.front()),
                                            ", which this version does not know"));
  }
  if (rest.size() < kFrameHeaderBytes) return std::nullopt;
  const std::size_t length = LengthIn(rest);
  if (rest.size() < kFrameHeaderBytes + length) return std::nullopt;
  OutputFrame frame{static_cast<FrameKind>(rest.front()),
                    std::string(rest.substr(kFrameHeaderBytes, length))};
  begin_ += kFrameHeaderBytes + length;
  if (begin_ > buffer_.size() / 2) {
    buffer_.erase(0, begin_);
    begin_ = 0;
  }
  return frame;
}

}  // namespace ddprun
