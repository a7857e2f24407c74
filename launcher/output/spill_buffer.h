// SPDX-License-Identifier: Apache-2.0
// The backlog of a slow console, first in first out: in memory, and beyond that in an unlinked
// temporary file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "rendezvous/base/owned_fd.h"

namespace ddprun {

class SpillBuffer {
 public:
  struct Limits {
    std::size_t memory_bytes = 0;
    std::uint64_t file_bytes = 0;
    std::size_t reserve_bytes = 0;  // beyond both, in memory, for lines that must not be dropped
  };

  explicit SpillBuffer(const Limits& limits) : limits_(limits) {}

  // Appends all or nothing. False: there is no room, or the file cannot be written.
  bool Append(std::string_view text, bool use_reserve = false);

  // The next piece; empty if the buffer is. Valid until the next Append() or Pop().
  std::string_view Front();
  void Pop(std::size_t bytes);

  std::uint64_t size() const { return head_.size() - taken_ + file_size_ + tail_.size(); }
  void Clear();

 private:
  bool Spill();
  bool OpenFile();

  const Limits limits_;
  std::string head_;  // from taken_ on: the next bytes
  std::size_t taken_ = 0;
  // Between head and tail: a ring of limits_.file_bytes.
  OwnedFd file_;
  bool file_failed_ = false;
  std::uint64_t file_begin_ = 0;
  std::uint64_t file_size_ = 0;
  std::string tail_;  // the last bytes
};

}  // namespace ddprun
