// SPDX-License-Identifier: Apache-2.0
#include "launcher/output/log_rotation.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace ddprun {
namespace {

// The first line with its end, or all if there is no end.
std::size_t FirstLineBytes(std::string_view bytes) {
  const std::size_t end = bytes.find('\n');
  return end == std::string_view::npos ? bytes.size() : end + 1;
}

}  // namespace

RotationStep NextRotationStep(std::string_view bytes, std::uint64_t size, bool at_line_start,
                              std::uint64_t size_max) {
  if (size_max == 0) return {.bytes = bytes.size()};
  const std::size_t line = FirstLineBytes(bytes);
  // The rest of a line goes to the file of its beginning.
  if (!at_line_start) return {.bytes = line};
  const bool full = size > 0 && size + line > size_max;
  const std::uint64_t room = full ? size_max : size_max - std::min(size, size_max);
  if (bytes.size() <= room) return {.rotate_first = full, .bytes = bytes.size()};
  const std::size_t end = bytes.substr(0, static_cast<std::size_t>(room)).rfind('\n');
  return {.rotate_first = full, .bytes = end == std::string_view::npos ? line : end + 1};
}

void LineGap::Admit(std::string_view bytes, bool has_room, std::string& out) {
  if (bytes.empty()) return;
  if (!has_room) {
    in_gap_ = true;
    return Lose(bytes);
  }
  if (in_gap_) {
    // Drops the rest of a line of which a part is lost.
    if (within_line_) {
      const std::size_t rest = FirstLineBytes(bytes);
      Lose(bytes.substr(0, rest));
      bytes.remove_prefix(rest);
      if (within_line_) return;
    }
    Close(out);
  }
  out += bytes;
  if (!bytes.empty()) written_within_line_ = within_line_ = bytes.back() != '\n';
}

void LineGap::Lose(std::string_view bytes) {
  const auto lines = static_cast<std::uint64_t>(std::count(bytes.begin(), bytes.end(), '\n'));
  gap_lines_ += lines;
  lost_lines_ += lines;
  within_line_ = bytes.back() != '\n';
}

void LineGap::Close(std::string& out) {
  absl::StrAppend(&out, written_within_line_ ? "\n" : "", "ddprun: ", gap_lines_,
                  gap_lines_ == 1 ? " line is" : " lines are",
                  " missing here: they could not be written in time\n");
  in_gap_ = false;
  written_within_line_ = false;
  gap_lines_ = 0;
}

void LineGap::Finish(std::string& out) {
  if (!in_gap_) return;
  if (within_line_) {
    ++gap_lines_;
    ++lost_lines_;
  }
  Close(out);
}

}  // namespace ddprun
