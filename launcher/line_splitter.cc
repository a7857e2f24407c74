// SPDX-License-Identifier: Apache-2.0
#include "launcher/line_splitter.h"

#include <algorithm>

namespace ddprun {

void LineSplitter::Append(std::string_view bytes) {
  while (!bytes.empty()) {
    if (after_return_) {
      after_return_ = false;
      if (bytes.front() == '\n') {
        EndLine();
        bytes.remove_prefix(1);
        continue;
      }
      partial_.clear();
    }
    const std::size_t end = std::min(bytes.find_first_of("\r\n"), bytes.size());
    const std::size_t taken = std::min(end, line_bytes_max_ - partial_.size());
    partial_.append(bytes.substr(0, taken));
    bytes.remove_prefix(taken);
    if (taken < end) {
      EndLine();  // too long: a piece
    } else if (!bytes.empty()) {
      const bool is_return = bytes.front() == '\r';
      bytes.remove_prefix(1);
      if (!is_return) {
        EndLine();
      } else {
        after_return_ = true;
        if (!partial_.empty()) sink_.progress(partial_);
      }
    }
  }
}

void LineSplitter::Flush() {
  // A progress segment at the very end was shown already and is nobody's line.
  if (!partial_.empty() && !after_return_) sink_.line(partial_);
  partial_.clear();
  after_return_ = false;
}

void LineSplitter::EndLine() {
  sink_.line(partial_);
  partial_.clear();
}

}  // namespace ddprun
