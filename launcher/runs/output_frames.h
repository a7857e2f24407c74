// SPDX-License-Identifier: Apache-2.0
// The form in which a detached run's output is kept and sent: frames of a byte that names the kind,
// the length in three bytes (big-endian), and as many bytes. Pure.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "launcher/base/output_stream.h"

namespace ddprun {

enum class FrameKind : char {
  // In the record.
  kOut = 'o',
  kErr = 'e',
  // Beside it, to a reader elsewhere.
  kGap = 'g',     // so many bytes of the record (in decimal) are gone
  kRecord = 'r',  // the run's record (run_record.h)
  kPlace = 'p',   // how far it was shown (attach_stream.h)
  kAlive = 'a',   // nothing is new
  // From the run to its recorder.
  kService = 's',      // where its rendezvous service can be asked
  kBegun = 'b',        // its first round has begun
  kEvent = 'n',        // a line of JSON (run_event.h)
  kSample = 'm',       // a line of JSON (run_sample.h)
  kStep = 't',         // a part of lines of step_lines.h, after the parts before
  kVerdict = 'v',      // what it says at its end
  kVerdictJson = 'j',  // a part of the verdict as JSON, after the parts before
};

struct OutputFrame {
  FrameKind kind = FrameKind::kOut;
  std::string bytes;
  bool operator==(const OutputFrame&) const = default;
};

inline constexpr std::size_t kFrameHeaderBytes = 4;
inline constexpr std::size_t kFrameBytesMax = (std::size_t{1} << 24) - 1;

inline FrameKind FrameOf(OutputStream stream) {
  return stream == OutputStream::kOut ? FrameKind::kOut : FrameKind::kErr;
}
// Of the record: these alone count for positions in it.
inline bool IsOutput(FrameKind kind) { return kind == FrameKind::kOut || kind == FrameKind::kErr; }

// `bytes`: at most kFrameBytesMax.
std::string EncodeFrame(FrameKind kind, absl::string_view bytes);

// Bytes in any pieces in, whole frames out.
class FrameParser {
 public:
  void Add(absl::string_view bytes) { buffer_.append(bytes.data(), bytes.size()); }
  // Absent: more bytes are needed. DATA_LOSS: these are no frames; a reason without a subject.
  absl::StatusOr<std::optional<OutputFrame>> Next();
  // The part of a frame whose rest has not come.
  std::size_t left() const { return buffer_.size() - begin_; }
  void Clear() { buffer_.clear(), begin_ = 0; }

 private:
  std::string buffer_;
  std::size_t begin_ = 0;
};

}  // namespace ddprun
