// SPDX-License-Identifier: Apache-2.0
// The threads that a service's streams are called back on, each with a completion queue of its own.
//
// gRPC's callback API has one queue for the whole process. The gRPC of Debian and Ubuntu is built
// with its own checks, of which one looks for whatever completes among all that is under way on its
// queue, one after the other: with the 20 000 streams of 10 000 nodes that was half of the
// service's processor time, and it grew with their square.
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
  // Something under way on a queue. Done() is called on the queue's thread.
  class Operation {
   public:
    virtual void Done(bool ok) = 0;

   protected:
    ~Operation() = default;
  };

  // The server is built after this and destroyed before it.
  explicit CompletionThreads(grpc::ServerBuilder& builder);
  ~CompletionThreads() { Stop(); }

  // Once the server is built.
  void Start();

  // Once the server is shut down and before it is destroyed: its own operations on the queues need
  // it. Waits for the streams, all of whose operations the shutdown has ended.
  void Stop();

  const std::vector<std::unique_ptr<grpc::ServerCompletionQueue>>& queues() const {
    return queues_;
  }

  // Streams that may still begin operations; until there are none the queues stay open.
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
