// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/base/printable.h"

namespace ddprun {

namespace {

constexpr char kEscape = '\x1B';

// The length of a sequence like ESC [ 31 m at the begin of `text`; 0 if there is none.
std::size_t ControlSequence(absl::string_view text) {
  if (text.size() < 3 || text[0] != kEscape || text[1] != '[') return 0;
  std::size_t end = 2;
  while (end < text.size() && text[end] >= 0x20 && text[end] < 0x40) ++end;
  return end < text.size() && text[end] >= 0x40 && text[end] < 0x7F ? end + 1 : 0;
}

std::string Clean(absl::string_view text, bool keeps_line_ends) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    if (const std::size_t sequence = ControlSequence(text); sequence > 0) {
      text.remove_prefix(sequence);
      continue;
    }
    const auto byte = static_cast<unsigned char>(text[0]);
    // U+0080 to U+009F are control characters too; in UTF-8 they begin with this byte.
    const bool high = byte == 0xC2 && text.size() > 1 && static_cast<unsigned char>(text[1]) < 0xA0;
    const bool is_kept = byte == '\t' || (keeps_line_ends && byte == '\n');
    const bool low = (byte < 0x20 && !is_kept) || byte == 0x7F;
    out.push_back(high || low ? '?' : text[0]);
    text.remove_prefix(high ? 2 : 1);
  }
  return out;
}

}  // namespace

std::string Printable(absl::string_view text) { return Clean(text, false); }

std::string PrintableLines(absl::string_view text) { return Clean(text, true); }

}  // namespace ddprun
