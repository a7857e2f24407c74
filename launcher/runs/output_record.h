// SPDX-License-Identifier: Apache-2.0
// The output of a detached run on disk: frames (output_frames.h) in files of
// kRunSegmentBytesMax, each named by the position of its first byte, of which the newest
// kRunOutputBytesMax are kept. One writes; any number read, and delay nobody.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "launcher/runs/output_frames.h"
#include "rendezvous/base/owned_fd.h"

namespace ddprun {

struct OutputBounds {
  std::uint64_t segment_bytes = 0;
  std::uint64_t all_bytes = 0;
};
OutputBounds DefaultOutputBounds();

class OutputWriter {
 public:
  explicit OutputWriter(std::string folder, const OutputBounds& bounds = DefaultOutputBounds())
      : folder_(std::move(folder)), bounds_(bounds) {}

  // Only if nothing is pending. `bytes`: in as many frames as they need.
  void Add(FrameKind kind, absl::string_view bytes);
  // Writes what is pending, the rest of it at the next call. UNAVAILABLE: the disk accepts none of
  // it now; a reason without a subject.
  absl::Status Write();
  bool pending() const { return !pending_.empty(); }
  std::uint64_t position() const { return position_; }

 private:
  absl::Status OpenSegment();

  const std::string folder_;
  const OutputBounds bounds_;
  OwnedFd file_;
  std::uint64_t begin_ = 0;     // of the segment that is written
  std::uint64_t position_ = 0;  // of the next byte
  std::string pending_;         // the rest of what was added
};

class OutputReader {
 public:
  // From a position at which a frame begins.
  OutputReader(std::string folder, std::uint64_t position)
      : folder_(std::move(folder)), position_(position), read_(position) {}

  // The next frame, or a kGap of what is not kept any more; absent: none has been written yet.
  // DATA_LOSS, UNAVAILABLE: one sentence.
  absl::StatusOr<std::optional<OutputFrame>> Next();
  // Of the next frame.
  std::uint64_t position() const { return position_; }

 private:
  absl::Status Fill(bool& more);
  absl::StatusOr<bool> OpenSegment();

  const std::string folder_;
  std::uint64_t position_;
  OwnedFd file_;
  std::uint64_t begin_ = 0;  // of the open segment
  std::uint64_t read_;       // position of the next byte to read
  std::uint64_t gap_ = 0;
  FrameParser parser_;
};

// The first position that is kept; absent: there is no output.
std::optional<std::uint64_t> FirstPosition(const std::string& folder);

// Calls `take` for each line that is kept, without its newline, until a disk does not give more.
void ReadLines(const std::string& folder,
               const std::function<void(OutputStream stream, std::string line)>& take);

}  // namespace ddprun
