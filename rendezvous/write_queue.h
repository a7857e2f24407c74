// SPDX-License-Identifier: Apache-2.0
// What is to be written on a gRPC stream, of which only one message may be under way at a time.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace ddprun {

// Threadsafe. Push() and Close() only take note, so that they may be called under a lock; Flush()
// starts the writing and is called without one. The reactor must outlive the queue's `end` call: a
// server's reactor does since its stream ends with Finish(), a client's since it holds its stream
// until then (AddHold).
template <typename Message>
class WriteQueue {
 public:
  using StartWrite = std::function<void(const Message*)>;
  using End = std::function<void()>;

  // `end` is called once: after Close(), when all that was pushed before is written or cannot be.
  WriteQueue(StartWrite start_write, End end)
      : start_write_(std::move(start_write)), end_(std::move(end)) {}

  // What comes after Close() is dropped.
  void Push(Message message) {
    absl::MutexLock lock(&mutex_);
    if (closed_) return;
    bytes_ += message.ByteSizeLong();
    queue_.push_back(std::move(message));
  }

  void Flush() {
    bool end_now = false;
    {
      absl::MutexLock lock(&mutex_);
      if (writing_ || ended_) return;
      if (!queue_.empty()) {
        current_ = std::move(queue_.front());
        queue_.pop_front();
        bytes_ -= current_.ByteSizeLong();
        writing_ = true;
      } else if (closed_) {
        ended_ = end_now = true;
      } else {
        return;
      }
    }
    // Not under the lock: serialising a large message takes its time. `writing_` keeps others out.
    if (end_now) {
      end_();
    } else {
      start_write_(&current_);
    }
  }

  // From the reactor's OnWriteDone.
  void OnWriteDone(bool ok) {
    {
      absl::MutexLock lock(&mutex_);
      writing_ = false;
      if (!ok) Drop();
    }
    Flush();
  }

  // Nothing more will come: the next Flush() writes what is queued and then ends.
  void Close() {
    absl::MutexLock lock(&mutex_);
    closed_ = true;
  }

  // As Close(), but what is queued is not written any more: the peer is gone.
  void Abandon() {
    absl::MutexLock lock(&mutex_);
    closed_ = true;
    Drop();
  }

  std::size_t bytes() {
    absl::MutexLock lock(&mutex_);
    return bytes_;
  }

 private:
  void Drop() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    queue_.clear();
    bytes_ = 0;
  }

  const StartWrite start_write_;
  const End end_;

  absl::Mutex mutex_;
  std::deque<Message> queue_ ABSL_GUARDED_BY(mutex_);
  std::size_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  Message current_;  // owned by whoever set writing_, until OnWriteDone
};

}  // namespace ddprun
