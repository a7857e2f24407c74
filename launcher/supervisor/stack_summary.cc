// SPDX-License-Identifier: Apache-2.0
#include "launcher/supervisor/stack_summary.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "launcher/base/limits.h"
#include "proto/text.h"

namespace ddprun {
namespace {

// A function's templates fill lines, and a file's folders are long: the ends of both say more.
std::string Shortened(const std::string& line) {
  if (line.size() <= kStackLineShown) return line;
  const auto is_within_character = [&line](std::size_t i) {
    return i < line.size() && (static_cast<unsigned char>(line[i]) & 0xC0) == 0x80;
  };
  std::size_t tail = line.size() - kStackLineShown / 2;
  while (is_within_character(tail)) ++tail;
  return absl::StrCat(CutText(line, kStackLineShown / 2), "...", line.substr(tail));
}

}  // namespace

StackSummary SummaryOf(const std::vector<std::string>& stack, std::size_t lines_max) {
  StackSummary summary;
  std::size_t frames = 0;  // of the thread so far
  for (const std::string& line : stack) {
    frames = absl::StartsWith(line, "    ") ? frames + 1 : 0;
    if (summary.lines.size() < lines_max && frames <= kStackFramesShown) {
      summary.lines.push_back(Shortened(line));
    } else {
      ++summary.left_out;
    }
  }
  return summary;
}

}  // namespace ddprun
