// SPDX-License-Identifier: Apache-2.0
// Bounds the memory of the large messages that a service writes at a time: until a peer has read
// one, gRPC has it twice. A peer that does not read while others wait is cut off.
#pragma once

#include <grpcpp/alarm.h>

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "rendezvous/base/clock.h"

namespace ddprun {

class ReplyRoom : public std::enable_shared_from_this<ReplyRoom> {
 public:
  // A stream that writes.
  class Writer {
   public:
    // There may be room now. Called without a lock.
    virtual void TryAgain() = 0;
    virtual void CutOff() = 0;

   protected:
    ~Writer() = default;
  };

  // Whether `writer`, which has none, gets room for a message of this size now. If not, and if it
  // waits, it is told when to try again. Threadsafe, as is Release().
  bool Take(const std::shared_ptr<Writer>& writer, std::size_t bytes, bool waits);
  // Its message was written, or cannot be. Does nothing if it has no room. Calls TryAgain() of
  // those that it makes room for.
  void Release(Writer* writer);

 private:
  struct Holder {
    std::weak_ptr<Writer> writer;
    std::size_t bytes = 0;
    TimePoint since;
  };

  bool FitsLocked(std::size_t bytes) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void CutOffStalled();
  void WatchLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  absl::Mutex mutex_;
  std::size_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::flat_hash_map<Writer*, Holder> holders_ ABSL_GUARDED_BY(mutex_);
  // The newest last, with the size of its message.
  std::vector<std::pair<std::weak_ptr<Writer>, std::size_t>> waiting_ ABSL_GUARDED_BY(mutex_);
  bool watching_ ABSL_GUARDED_BY(mutex_) = false;
  // Each is set once: that may not be done in its own callback again.
  std::unique_ptr<grpc::Alarm> alarm_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ddprun
