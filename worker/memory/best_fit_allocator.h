// SPDX-License-Identifier: Apache-2.0
// A best-fit allocator over address ranges; free neighbours are joined again. Pure bookkeeping: it
// never touches the memory that it hands out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

namespace ddprun {

class BestFitAllocator {
 public:
  struct Range {
    std::uintptr_t begin = 0;
    std::size_t size = 0;
  };

  // All blocks begin at multiples of `alignment` (a power of two), as ranges must.
  explicit BestFitAllocator(std::size_t alignment) : alignment_(alignment) {}

  // A range to deal out. Ranges that touch stay apart.
  void AddRange(Range range);

  // The smallest free part that is large enough, the lowest of several; nothing if there is none.
  std::optional<std::uintptr_t> Take(std::size_t size);

  // `begin` must come from Take() and not have been given back.
  void GiveBack(std::uintptr_t begin);

  bool IsTaken(std::uintptr_t begin) const { return taken_.contains(begin); }

  // Takes those ranges out of which nothing is taken, and gives them to the caller.
  std::vector<Range> RemoveFreeRanges();

  std::size_t taken_bytes() const { return taken_bytes_; }
  std::size_t range_bytes() const { return range_bytes_; }

 private:
  using BySize = std::set<std::pair<std::size_t, std::uintptr_t>>;

  void AddFree(std::uintptr_t begin, std::size_t size);
  void RemoveFree(std::map<std::uintptr_t, std::size_t>::iterator block);

  const std::size_t alignment_;
  std::map<std::uintptr_t, std::size_t> ranges_;
  std::map<std::uintptr_t, std::size_t> free_;  // by address, to find neighbours
  BySize free_by_size_;
  std::unordered_map<std::uintptr_t, std::size_t> taken_;
  std::size_t taken_bytes_ = 0;
  std::size_t range_bytes_ = 0;
};

}  // namespace ddprun
