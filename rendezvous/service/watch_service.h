// SPDX-License-Identifier: Apache-2.0
// Control.WatchRun: a stream of news to a watcher of a run.
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

  // `peer`: the caller, as gRPC names it. `run_id`: the run that it may watch.
  grpc::ServerWriteReactor<v1::RunNews>* Watch(const std::string& peer,
                                               const v1::WatchRunRequest& request,
                                               const absl::StatusOr<std::string>& run_id);

  // Sends all watchers the rest of their news and ends their streams. Returns when all have ended,
  // or after the timeout.
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
