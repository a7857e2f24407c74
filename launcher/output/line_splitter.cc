// SPDX-License-Identifier: Apache-2.0
#include "launcher/output/line_splitter.h"

#include <cstring>

namespace ddprun {
namespace {

// A larger buffer is freed after a long line.
constexpr std::size_t kKeptBytes = 64u << 10;

// memchr() is much faster than find_first_of(), and all output of the workers passes here.
std::size_t Find(std::string_view bytes, char c) {
  const void* at = bytes.empty() ? nullptr : std::memchr(bytes.data(), c, bytes.size());
  return at == nullptr ? bytes.size()
                       : static_cast<std::size_t>(static_cast<const char*>(at) - bytes.data());
}

}  // namespace

void LineSplitter::Append(std::string_view bytes) {
  while (!bytes.empty()) {
    const std::size_t newline = Find(bytes, '\n');
    const std::string_view text = bytes.substr(0, newline);
    const bool ends = newline < bytes.size();
    bytes.remove_prefix(ends ? newline + 1 : newline);
    if (ends && partial_.empty() && !after_return_ && text.size() <= line_bytes_max_ &&
        Find(text, '\r') == text.size()) {
      sink_.line(text);  // most lines: no copy
      continue;
    }
    AppendText(text);
    if (ends) EndLine();
  }
}

void LineSplitter::AppendText(std::string_view text) {
  while (!text.empty()) {
    if (after_return_) partial_.clear();
    after_return_ = false;
    const std::size_t end = Find(text, '\r');
    AppendSegment(text.substr(0, end));
    if (end == text.size()) return;
    text.remove_prefix(end + 1);
    after_return_ = true;
    if (!partial_.empty()) sink_.progress(partial_);
  }
}

void LineSplitter::AppendSegment(std::string_view segment) {
  while (!segment.empty()) {
    if (partial_.size() == line_bytes_max_) EndLine();  // too long: passes on a piece
    const std::string_view piece = segment.substr(0, line_bytes_max_ - partial_.size());
    partial_ += piece;
    segment.remove_prefix(piece.size());
  }
}

void LineSplitter::Flush() {
  // A progress segment at the end was passed on already and is not a line.
  if (!partial_.empty() && !after_return_) sink_.line(partial_);
  partial_.clear();
  after_return_ = false;
}

void LineSplitter::EndLine() {
  sink_.line(partial_);
  partial_.clear();
  after_return_ = false;
  if (partial_.capacity() > kKeptBytes) partial_.shrink_to_fit();
}

}  // namespace ddprun
