// SPDX-License-Identifier: Apache-2.0
// The threads that call back a service's streams, each with its own completion queue.
//
// gRPC's callback API has one queue for the whole process. Debian and Ubuntu build gRPC with
// internal checks; one of them searches all pending operations of a queue linearly whenever one
// completes. With the 20 000 streams of 10 000 nodes this took half of the service's processor
// time, and it grew with their square.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace ddprun {

class CompletionThreads {
 public:
  // A pending operation of a queue. Done() is called on the queue's thread.
  class Operation {
   public:
    virtual void Done(bool ok) = 0;

   protected:
    ~Operation() = default;
  };

  // The server must be built after this and destroyed before it.
  explicit CompletionThreads(grpc::ServerBuilder& builder);
  ~CompletionThreads() { Stop(); }

  // Call it after the server is built.
  void Start();

  // Call it after the server's shutdown and before its destruction: the server's own operations on
  // the queues need it. Waits for the streams, whose operations the shutdown has ended.
  void Stop();

  const std::vector<std::unique_ptr<grpc::ServerCompletionQueue>>& queues() const {
    return queues_;
  }

  // Count the streams that may still begin operations; the queues stay open until there are none.
  void StreamBegins();
  void StreamEnds();

 private:
  std::vector<std::unique_ptr<grpc::ServerCompletionQueue>> queues_;
  std::vector<std::thread> threads_;
  bool stopped_ = false;

  absl::Mutex mutex_;
  int streams_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace ddprun
