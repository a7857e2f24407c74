// SPDX-License-Identifier: Apache-2.0
// The Rendezvous RPCs: decodes reports, passes them to the run, writes the run's directives.
#pragma once

#include "proto/ddprun.grpc.pb.h"
#include "rendezvous/listener/peer_guard.h"
#include "rendezvous/service/run_registry.h"
#include "rendezvous/streams/completion_threads.h"

namespace ddprun {

// The stream on queues of our own, the others on gRPC's.
using SessionServiceBase =
    v1::Rendezvous::WithAsyncMethod_Session<v1::Rendezvous::WithCallbackMethod_ReportLoss<
        v1::Rendezvous::WithCallbackMethod_GetStatus<v1::Rendezvous::Service>>>;

class SessionService final : public SessionServiceBase {
 public:
  SessionService(RunRegistry& registry, PeerGuard& guard) : registry_(registry), guard_(guard) {}

  // Once the server is built.
  void Serve(CompletionThreads& threads);

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
