// SPDX-License-Identifier: Apache-2.0
// Writes a gRPC stream that allows one write at a time; each message takes everything that is
// pending when its write begins.
#pragma once

#include <functional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "rendezvous/base/limits.h"

namespace ddprun {

// Empties a message that was serialised last. Clearing it keeps the memory of all its parts; how
// much that is takes long to count, and is below kKeptMessageBytes where the bytes of it were few:
// the least part has two bytes, and takes less than 128.
template <typename Message>
void ClearKept(Message& message) {
  const auto bytes = static_cast<std::size_t>(message.GetCachedSize());
  if (bytes > kKeptMessageBytes / 64 && message.SpaceUsedLong() > kKeptMessageBytes) {
    message = Message();
  } else {
    message.Clear();
  }
}

// Threadsafe. Flush() and OnWriteDone() must be called without the locks that `fill` takes. As with
// WriteQueue the reactor must outlive the call of `end`.
template <typename Message>
class BatchWriter {
 public:
  // Fills an empty message; false if nothing is pending.
  using Fill = std::function<bool(Message*)>;
  using StartWrite = std::function<void(const Message*)>;
  using End = std::function<void()>;

  // `end` is called once, after Close() or Abandon().
  BatchWriter(Fill fill, StartWrite start_write, End end)
      : fill_(std::move(fill)), start_write_(std::move(start_write)), end_(std::move(end)) {}

  void Flush() {
    bool end_now = false;
    {
      absl::MutexLock lock(&mutex_);
      if (writing_ || ended_) return;
      ClearKept(current_);
      if (!abandoned_ && fill_(&current_)) {
        writing_ = true;
      } else if (closed_) {
        ended_ = end_now = true;
      } else {
        return;
      }
    }
    // Not under the lock: serialising takes time. `writing_` excludes other threads.
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
      if (!ok) abandoned_ = true;
    }
    Flush();
  }

  // The next Flush() writes what is pending and then ends.
  void Close() {
    absl::MutexLock lock(&mutex_);
    closed_ = true;
  }

  // As Close(), but nothing more is written: the peer is gone.
  void Abandon() {
    absl::MutexLock lock(&mutex_);
    closed_ = abandoned_ = true;
  }

 private:
  const Fill fill_;
  const StartWrite start_write_;
  const End end_;

  absl::Mutex mutex_;
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  bool abandoned_ ABSL_GUARDED_BY(mutex_) = false;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  Message current_;  // owned by the thread that set writing_, until OnWriteDone
};

}  // namespace ddprun
