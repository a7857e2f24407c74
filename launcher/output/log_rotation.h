// SPDX-License-Identifier: Apache-2.0
// Where a growing log is cut into files, and what is left out of one that cannot keep up: always
// between lines. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace ddprun {

struct RotationStep {
  bool rotate_first = false;  // the file is put aside before the bytes are written
  std::size_t bytes = 0;      // how many of the given ones belong into one file
};

// What to do next with `bytes`, which are not empty, for a file that has `size` bytes by now.
// `size_max` 0: one file for all. A line that is longer than `size_max` has a file of its own.
RotationStep NextRotationStep(std::string_view bytes, std::uint64_t size, bool at_line_start,
                              std::uint64_t size_max);

// Leaves out whole lines if there is no room, and writes their number in their place.
class LineGap {
 public:
  // Appends to `out` what is to be written, where there is room for `bytes`.
  void Admit(std::string_view bytes, bool has_room, std::string& out);

  // The stream is over: appends what is to be written at its end.
  void Finish(std::string& out);

  std::uint64_t lost_lines() const { return lost_lines_; }

 private:
  void Lose(std::string_view bytes);
  void Close(std::string& out);

  bool in_gap_ = false;
  bool within_line_ = false;          // where the stream is, lost or not
  bool written_within_line_ = false;  // where that is which was written
  std::uint64_t gap_lines_ = 0;
  std::uint64_t lost_lines_ = 0;  // of all gaps
};

}  // namespace ddprun
