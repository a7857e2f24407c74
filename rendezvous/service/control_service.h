// SPDX-License-Identifier: Apache-2.0
// The Control RPCs: an operator's requests to a run, and a stream of news to a watcher of a run.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "proto/ddprun.grpc.pb.h"
#include "rendezvous/listener/peer_guard.h"
#include "rendezvous/service/run_registry.h"

namespace ddprun {

// Threadsafe. Outlives the server.
class ControlService final : public v1::Control::CallbackService {
 public:
  ControlService(RunRegistry& registry, PeerGuard& guard) : registry_(registry), guard_(guard) {}

  grpc::ServerUnaryReactor* StopRun(grpc::CallbackServerContext* context,
                                    const v1::StopRunRequest* request,
                                    v1::StopRunAnswer* answer) override;
  grpc::ServerUnaryReactor* DrainNode(grpc::CallbackServerContext* context,
                                      const v1::DrainNodeRequest* request,
                                      v1::DrainNodeAnswer* answer) override;
  grpc::ServerWriteReactor<v1::RunNews>* WatchRun(grpc::CallbackServerContext* context,
                                                  const v1::WatchRunRequest* request) override;

  grpc::ServerUnaryReactor* InjectFault(grpc::CallbackServerContext* context,
                                        const v1::InjectFaultRequest* request,
                                        v1::InjectFaultAnswer* answer) override;

  // Sends all watchers the rest of their news and ends their streams. Returns when all have ended,
  // or after the timeout.
  void EndWatches(std::chrono::milliseconds timeout);

 private:
  class FaultCall;
  class Watch;

  void WatchEnded();
  bool HasNoWatch() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return watch_count_ == 0; }

  RunRegistry& registry_;
  PeerGuard& guard_;
  absl::Mutex mutex_;
  std::vector<std::weak_ptr<Watch>> watches_ ABSL_GUARDED_BY(mutex_);
  std::size_t watch_count_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace ddprun
