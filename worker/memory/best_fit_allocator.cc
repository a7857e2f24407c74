// SPDX-License-Identifier: Apache-2.0
#include "worker/memory/best_fit_allocator.h"

#include <iterator>

namespace ddprun {

void BestFitAllocator::AddRange(Range range) {
  ranges_.emplace(range.begin, range.size);
  range_bytes_ += range.size;
  AddFree(range.begin, range.size);
}

std::optional<std::uintptr_t> BestFitAllocator::Take(std::size_t size) {
  const std::size_t rounded = (size + alignment_ - 1) / alignment_ * alignment_;
  const auto fit = free_by_size_.lower_bound({rounded, 0});
  if (fit == free_by_size_.end()) return std::nullopt;
  const auto [available, begin] = *fit;
  RemoveFree(free_.find(begin));
  if (available > rounded) AddFree(begin + rounded, available - rounded);
  taken_.emplace(begin, rounded);
  taken_bytes_ += rounded;
  return begin;
}

void BestFitAllocator::GiveBack(std::uintptr_t begin) {
  const auto block = taken_.find(begin);
  std::size_t size = block->second;
  taken_bytes_ -= size;
  taken_.erase(block);
  // A range's first block has no neighbour before it, even if another range ends there.
  const auto next = free_.find(begin + size);
  if (next != free_.end() && !ranges_.contains(next->first)) {
    size += next->second;
    RemoveFree(next);
  }
  const auto after = free_.lower_bound(begin);
  if (after != free_.begin() && !ranges_.contains(begin)) {
    const auto before = std::prev(after);
    if (before->first + before->second == begin) {
      begin = before->first;
      size += before->second;
      RemoveFree(before);
    }
  }
  AddFree(begin, size);
}

std::vector<BestFitAllocator::Range> BestFitAllocator::RemoveFreeRanges() {
  std::vector<Range> removed;
  for (auto range = ranges_.begin(); range != ranges_.end();) {
    const auto block = free_.find(range->first);
    if (block == free_.end() || block->second != range->second) {
      ++range;
      continue;
    }
    removed.push_back({range->first, range->second});
    range_bytes_ -= range->second;
    RemoveFree(block);
    range = ranges_.erase(range);
  }
  return removed;
}

void BestFitAllocator::AddFree(std::uintptr_t begin, std::size_t size) {
  free_.emplace(begin, size);
  free_by_size_.emplace(size, begin);
}

void BestFitAllocator::RemoveFree(std::map<std::uintptr_t, std::size_t>::iterator block) {
  free_by_size_.erase({block->second, block->first});
  free_.erase(block);
}

}  // namespace ddprun
