// SPDX-License-Identifier: Apache-2.0
// The Control RPCs: an operator's requests to a run.
#pragma once

#include "proto/ddprun.grpc.pb.h"
#include "rendezvous/listener/peer_guard.h"
#include "rendezvous/service/run_registry.h"
#include "rendezvous/service/watch_service.h"

namespace ddprun {

class ControlService final : public v1::Control::CallbackService {
 public:
  ControlService(RunRegistry& registry, PeerGuard& guard)
      : registry_(registry), guard_(guard), watches_(registry) {}

  grpc::ServerUnaryReactor* StopRun(grpc::CallbackServerContext* context,
                                    const v1::StopRunRequest* request,
                                    v1::StopRunAnswer* answer) override;
  grpc::ServerUnaryReactor* DrainNode(grpc::CallbackServerContext* context,
                                      const v1::DrainNodeRequest* request,
                                      v1::DrainNodeAnswer* answer) override;
  grpc::ServerWriteReactor<v1::RunNews>* WatchRun(grpc::CallbackServerContext* context,
                                                  const v1::WatchRunRequest* request) override;

  WatchService& watches() { return watches_; }

 private:
  RunRegistry& registry_;
  PeerGuard& guard_;
  WatchService watches_;
};

}  // namespace ddprun
