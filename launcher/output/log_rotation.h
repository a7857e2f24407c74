// SPDX-License-Identifier: Apache-2.0
// Decides where a growing log is split into files, and which lines are dropped if the disk is too
// slow. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace ddprun {

struct RotationStep {
  bool rotate_first = false;  // rotate the file before the bytes are written
  std::size_t bytes = 0;      // how many bytes belong to this file
};

// The next step for `bytes` (not empty) and a file of `size` bytes. `size_max` 0: no rotation. A
// line longer than `size_max` has a file of its own.
RotationStep NextRotationStep(std::string_view bytes, std::uint64_t size, bool at_line_start,
                              std::uint64_t size_max);

// Drops whole lines if there is no room, and writes their number in their place.
class LineGap {
 public:
  // Appends to `out` the bytes to write. `has_room`: there is room for `bytes`.
  void Admit(std::string_view bytes, bool has_room, std::string& out);

  // The stream has ended: appends the bytes to write at its end.
  void Finish(std::string& out);

  std::uint64_t lost_lines() const { return lost_lines_; }

 private:
  void Lose(std::string_view bytes);
  void Close(std::string& out);

  bool in_gap_ = false;
  bool within_line_ = false;          // of the stream, dropped bytes included
  bool written_within_line_ = false;  // of the written bytes
  std::uint64_t gap_lines_ = 0;
  std::uint64_t lost_lines_ = 0;  // of all gaps
};

}  // namespace ddprun
