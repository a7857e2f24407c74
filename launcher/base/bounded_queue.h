// SPDX-License-Identifier: Apache-2.0
// A first-in first-out queue with a limit, for a slow reader. Writing never blocks. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <utility>

namespace ddprun {

// The items that are dropped if there is no room.
enum class Overflow {
  kRefuse,      // the new item; the next one that is taken has the number of those before it
  kDropOldest,  // the oldest items, without a trace: the queue holds the newest that fit
};

// Sizes are in bytes, or whatever else the caller counts.
template <typename T>
class BoundedQueue {
 public:
  struct Limits {
    std::size_t size_max = 0;
    std::size_t items_kept = 0;  // kDropOldest: so many are kept whatever their size
  };
  struct Item {
    T value;
    std::size_t size = 0;
    std::uint64_t left_out = 0;  // items before this one
  };

  BoundedQueue(Overflow overflow, const Limits& limits) : overflow_(overflow), limits_(limits) {}

  void Push(T value, std::size_t size) {
    if (overflow_ == Overflow::kRefuse && size_ + size > limits_.size_max) {
      ++left_out_;
      return;
    }
    PushBeyondLimit(std::move(value), size);
    while (overflow_ == Overflow::kDropOldest && size_ > limits_.size_max &&
           items_.size() > limits_.items_kept) {
      Pop();
    }
  }

  // For items whose number has another limit.
  void PushBeyondLimit(T value, std::size_t size) {
    items_.push_back({std::move(value), size, TakeLeftOut()});
    size_ += size;
  }

  Item Pop() {
    Item item = std::move(items_.front());
    items_.pop_front();
    size_ -= item.size;
    return item;
  }

  // The number that was left out behind the last item, once.
  std::uint64_t TakeLeftOut() { return std::exchange(left_out_, 0); }
  std::uint64_t left_out() const { return left_out_; }

  const std::deque<Item>& items() const { return items_; }
  bool empty() const { return items_.empty(); }
  std::size_t size() const { return size_; }
  bool is_full() const { return size_ >= limits_.size_max; }

 private:
  Overflow overflow_;
  Limits limits_;
  std::deque<Item> items_;
  std::size_t size_ = 0;
  std::uint64_t left_out_ = 0;
};

}  // namespace ddprun
