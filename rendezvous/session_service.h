// SPDX-License-Identifier: Apache-2.0
// The Rendezvous RPCs: decode what is said, hand it to the run, write what the run says.
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
  grpc::ServerUnaryReactor* ReportLoss(grpc::CallbackServerContext* context,
                                       const v1::LossReport* message,
                                       v1::LossAnswer* answer) override;
  grpc::ServerUnaryReactor* GetStatus(grpc::CallbackServerContext* context,
                                      const v1::StatusRequest* request,
                                      v1::StatusAnswer* answer) override;

 private:
  absl::Status TakeLoss(const grpc::CallbackServerContext& context, const LossReport& report);

  RunRegistry& registry_;
  PeerGuard& guard_;
};

}  // namespace ddprun
