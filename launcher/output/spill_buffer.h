// SPDX-License-Identifier: Apache-2.0
// What waits for a slow console, first in first out: in memory, beyond that in a temporary file
// that has no name and is gone with the process.
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
    std::size_t reserve_bytes = 0;  // beyond both, in memory, for what must not be left out
  };

  explicit SpillBuffer(const Limits& limits) : limits_(limits) {}

  // All of it or nothing. False: there is no room, or the file cannot be written.
  bool Append(std::string_view text, bool use_reserve = false);

  // What comes next, as one piece; empty if nothing waits. Until the next call of Append() or
  // Pop().
  std::string_view Front();
  void Pop(std::size_t bytes);

  std::uint64_t size() const { return head_.size() - taken_ + file_size_ + tail_.size(); }
  void Clear();

 private:
  bool Spill();
  bool OpenFile();

  const Limits limits_;
  std::string head_;  // from taken_ on: what comes next
  std::size_t taken_ = 0;
  // Between them, a ring of limits_.file_bytes.
  OwnedFd file_;
  bool file_failed_ = false;
  std::uint64_t file_begin_ = 0;
  std::uint64_t file_size_ = 0;
  std::string tail_;  // what came last
};

}  // namespace ddprun
