// SPDX-License-Identifier: Apache-2.0
// Bytes that wait for a slow reader, first in first out. They lie in pieces, each of which is freed
// once it is taken, and are never moved. The caller limits their number. Pure.
#pragma once

#include <cstddef>
#include <deque>
#include <string>
#include <string_view>

namespace ddprun {

class Backlog {
 public:
  explicit Backlog(std::size_t piece_bytes) : piece_bytes_(piece_bytes) {}

  void Append(std::string_view text) {
    size_ += text.size();
    while (!text.empty()) {
      if (pieces_.empty() || pieces_.back().size() == piece_bytes_)
        pieces_.emplace_back().reserve(piece_bytes_);
      const std::string_view part = text.substr(0, piece_bytes_ - pieces_.back().size());
      pieces_.back() += part;
      text.remove_prefix(part.size());
    }
  }

  // The next bytes, of one piece; empty if the backlog is. Valid until the next call that changes
  // it.
  std::string_view Front() const {
    return pieces_.empty() ? std::string_view() : std::string_view(pieces_.front()).substr(taken_);
  }

  // Removes bytes that Front() returned.
  void Pop(std::size_t bytes) {
    size_ -= bytes;
    taken_ += bytes;
    if (pieces_.empty() || taken_ < pieces_.front().size()) return;
    taken_ = 0;
    if (pieces_.size() > 1) {
      pieces_.pop_front();
    } else {
      pieces_.front().clear();  // keeps its memory for the next bytes
    }
  }

  void Clear() {
    pieces_.clear();
    taken_ = 0;
    size_ = 0;
  }

  std::size_t size() const { return size_; }

 private:
  std::size_t piece_bytes_;
  std::deque<std::string> pieces_;
  std::size_t taken_ = 0;  // of the first piece
  std::size_t size_ = 0;
};

}  // namespace ddprun
