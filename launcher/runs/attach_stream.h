// SPDX-License-Identifier: Apache-2.0
// What `ddpctl attach` and its other end say to each other, over the stdin and stdout of a process
// of this machine or of ssh. Pure; the reader's side, and the texts of both.
//
//   server: kRecord (the run), kPlace (how far its user has been shown it)
//   reader: a line "POSITION WITHIN": where to begin
//   server: kOut, kErr, kGap; kAlive where nothing was new for kAttachAliveInterval; at the run's
//   end
//           kRecord, and it ends
//   reader: lines as before, of what it has shown
//
// A connection may end anywhere: the reader begins the next one at the place that it has reached.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "launcher/runs/output_frames.h"
#include "launcher/runs/run_record.h"

namespace ddprun {

// How far the output of a run has been shown: all before a frame, and the first bytes of that
// frame.
struct OutputPlace {
  std::uint64_t position = 0;
  std::uint64_t within = 0;
  bool operator==(const OutputPlace&) const = default;
};

// Of constant length, so that a file never has the digits of two places; with a line end.
std::string ToLine(const OutputPlace& place);
std::optional<OutputPlace> ParseOutputPlace(absl::string_view line);

class AttachStream {
 public:
  // `from_start`: all that is kept, whatever was shown before.
  explicit AttachStream(bool from_start) : from_start_(from_start) {}

  // A connection begins: nothing of the last one is left.
  void Begin();
  void Add(absl::string_view bytes) { parser_.Add(bytes); }

  // The next output to show (kOut, kErr: the part that was not shown yet), or a kGap; absent: more
  // bytes are needed. Call Shown() before the next call. DATA_LOSS: the other end is no ddpctl; one
  // sentence.
  absl::StatusOr<std::optional<OutputFrame>> Next();
  // So many bytes of the last frame were shown.
  void Shown(std::size_t bytes);

  // The line to send now: where to begin, once the server has said what it has. Absent: none.
  std::optional<std::string> TakeLine();
  const OutputPlace& place() const { return place_; }
  // Of this connection or an earlier one. Absent: the run is not known yet.
  const std::optional<RunRecord>& record() const { return record_; }
  bool began() const { return began_; }  // this connection has
  bool ended() const { return ended_; }  // the run has, and all of it was shown

 private:
  FrameParser parser_;
  std::optional<RunRecord> record_;
  OutputPlace place_;
  std::size_t last_size_ = 0;  // of the frame that is being shown
  bool from_start_;
  bool placed_ = false;  // place_ is that of this reader
  bool began_ = false;
  bool says_begin_ = false;
  bool ended_ = false;
};

}  // namespace ddprun
