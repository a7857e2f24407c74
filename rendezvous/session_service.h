// SPDX-License-Identifier: Apache-2.0
// The Session RPC: decode a report, hand it to the run, write what the run says.
#pragma once

#include "proto/ddprun.grpc.pb.h"
#include "rendezvous/peer_guard.h"
#include "rendezvous/run_registry.h"

namespace ddprun {

class SessionService final : public v1::Rendezvous::CallbackService {
 public:
  SessionService(RunRegistry& registry, PeerGuard& guard) : registry_(registry), guard_(guard) {}

  grpc::ServerBidiReactor<v1::Report, v1::Directive>* Session(
      grpc::CallbackServerContext* context) override;

 private:
  RunRegistry& registry_;
  PeerGuard& guard_;
};

}  // namespace ddprun
