// SPDX-License-Identifier: Apache-2.0
// Control.WatchRun: a stream of news to whoever watches a run.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "proto/ddprun.grpc.pb.h"
#include "rendezvous/service/run_registry.h"

namespace ddprun {

// Threadsafe. Outlives the server.
class WatchService {
 public:
  explicit WatchService(RunRegistry& registry) : registry_(registry) {}

  // `peer`: who asks, as gRPC names it. `run_id`: that it may watch, of those that it asked for.
  grpc::ServerWriteReactor<v1::RunNews>* Watch(const std::string& peer,
                                               const v1::WatchRunRequest& request,
                                               const absl::StatusOr<std::string>& run_id);

  // Whoever watches gets what there is for him, and then the end. Returns when all have, or the
  // time is over.
  void End(std::chrono::milliseconds timeout);

 private:
  class Stream;

  void Ended();
  bool NobodyIsLeft() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return count_ == 0; }

  RunRegistry& registry_;
  absl::Mutex mutex_;
  std::vector<std::weak_ptr<Stream>> streams_ ABSL_GUARDED_BY(mutex_);
  std::size_t count_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace ddprun
