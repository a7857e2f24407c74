// SPDX-License-Identifier: Apache-2.0
// A queue of messages for a gRPC stream, which allows one write at a time.
#pragma once

#include <deque>
#include <functional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "rendezvous/streams/batch_writer.h"

namespace ddprun {

// Threadsafe. Push() and Close() only record, so they may be called under a lock; Flush() starts
// the writing and must be called without one. The reactor must outlive the queue's `end` call: a
// server's reactor does because its stream ends with Finish(), a client's because it holds its
// stream until then (AddHold).
template <typename Message>
class WriteQueue {
 public:
  using StartWrite = std::function<void(const Message*)>;
  using End = std::function<void()>;

  // `end` is called once: after Close(), when all messages pushed before are written or cannot be.
  WriteQueue(StartWrite start_write, End end)
      : writer_([this](Message* message) { return Pop(message); }, std::move(start_write),
                std::move(end)) {}

  // Messages after Close() are dropped.
  void Push(Message message) {
    absl::MutexLock lock(&mutex_);
    if (!closed_) queue_.push_back(std::move(message));
  }

  void Flush() { writer_.Flush(); }

  // From the reactor's OnWriteDone.
  void OnWriteDone(bool ok) {
    if (!ok) Drop();
    writer_.OnWriteDone(ok);
  }

  // The next Flush() writes what is queued and then ends.
  void Close() {
    {
      absl::MutexLock lock(&mutex_);
      closed_ = true;
    }
    writer_.Close();
  }

  // As Close(), but queued messages are not written: the peer is gone.
  void Abandon() {
    Drop();
    writer_.Abandon();
  }

 private:
  bool Pop(Message* message) {
    absl::MutexLock lock(&mutex_);
    if (queue_.empty()) return false;
    *message = std::move(queue_.front());
    queue_.pop_front();
    return true;
  }

  // The peer is gone: drops queued and later messages.
  void Drop() {
    absl::MutexLock lock(&mutex_);
    closed_ = true;
    queue_.clear();
  }

  absl::Mutex mutex_;  // taken after the writer's
  std::deque<Message> queue_ ABSL_GUARDED_BY(mutex_);
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  BatchWriter<Message> writer_;
};

}  // namespace ddprun
