// SPDX-License-Identifier: Apache-2.0
// The replies that a client of an agent's store has not read yet.
#pragma once

#include <atomic>
#include <cstddef>
#include <deque>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "rendezvous/base/clock.h"
#include "rendezvous/tcpstore/store_value.h"

namespace ddprun {

// The memory of all queues together: a value that many clients wait for counts once. Threadsafe.
class UnreadBytes {
 public:
  void Add(const StoreValue& value);
  void Remove(const StoreValue& value);
  std::size_t total() const { return total_; }

 private:
  absl::Mutex mutex_;
  absl::flat_hash_map<const void*, std::size_t> queues_ ABSL_GUARDED_BY(mutex_);  // of each value
  std::atomic<std::size_t> total_{0};
};

// Replies to one client. Not threadsafe.
class ReplyQueue {
 public:
  explicit ReplyQueue(UnreadBytes& all) : all_(all) {}
  ~ReplyQueue() { Clear(); }
  ReplyQueue(const ReplyQueue&) = delete;
  ReplyQueue& operator=(const ReplyQueue&) = delete;

  // Sends what was queued and then `more` as far as the socket takes it now, and queues the rest.
  // False: the connection is gone; nothing is queued.
  bool Send(int fd, std::vector<StoreValue> more, TimePoint now);
  void Clear();

  bool empty() const { return pieces_.empty(); }
  // Until when the client has kept up: what it reads lets it keep up for as long as that takes at
  // kUnreadReplyRate. If nothing is queued, of no meaning.
  TimePoint kept_up_until() const { return kept_up_until_; }

 private:
  // Sends pieces from `at` on, of the first of them what comes after begin_; moves `at` behind the
  // last that was sent whole, and adds to `bytes`. False: the connection is gone.
  template <typename Pieces>
  bool SendFrom(int fd, const Pieces& pieces, std::size_t& at, std::size_t& bytes);

  UnreadBytes& all_;
  std::deque<StoreValue> pieces_;
  std::size_t begin_ = 0;  // of the first one: these are sent
  TimePoint kept_up_until_{};
};

}  // namespace ddprun
