// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/streams/completion_threads.h"

#include "rendezvous/base/bounded_call.h"
#include "rendezvous/base/limits.h"

namespace ddprun {

CompletionThreads::CompletionThreads(grpc::ServerBuilder& builder) {
  for (int i = 0; i < kCompletionThreads; ++i) {
    queues_.push_back(builder.AddCompletionQueue());
  }
}

void CompletionThreads::Start() {
  for (const auto& queue : queues_) {
    threads_.emplace_back([of = queue.get()] {
      const SignalsBlocked blocked;
      void* tag = nullptr;
      bool ok = false;
      while (of->Next(&tag, &ok)) static_cast<Operation*>(tag)->Done(ok);
    });
  }
}

void CompletionThreads::Stop() {
  if (stopped_) return;
  {
    absl::MutexLock lock(&mutex_);
    const auto none = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return streams_ == 0; };
    mutex_.Await(absl::Condition(&none));
  }
  // A queue must be empty when it is destroyed; the threads empty them.
  if (threads_.empty()) Start();
  for (const auto& queue : queues_) queue->Shutdown();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
  stopped_ = true;
}

void CompletionThreads::StreamBegins() {
  absl::MutexLock lock(&mutex_);
  ++streams_;
}

void CompletionThreads::StreamEnds() {
  absl::MutexLock lock(&mutex_);
  --streams_;
}

}  // namespace ddprun
