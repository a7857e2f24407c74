// SPDX-License-Identifier: Apache-2.0
// The Store RPC: decode an operation, hand it to the run's store, write the answers in the order in
// which they come.
#pragma once

#include "proto/ddprun.grpc.pb.h"
#include "rendezvous/peer_guard.h"
#include "rendezvous/run_registry.h"

namespace ddprun {

class StoreService final : public v1::Store::CallbackService {
 public:
  StoreService(RunRegistry& registry, PeerGuard& guard) : registry_(registry), guard_(guard) {}

  grpc::ServerBidiReactor<v1::StoreRequests, v1::StoreReplies>* Exchange(
      grpc::CallbackServerContext* context) override;

 private:
  RunRegistry& registry_;
  PeerGuard& guard_;
};

}  // namespace ddprun
