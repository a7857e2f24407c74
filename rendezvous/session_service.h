// SPDX-License-Identifier: Apache-2.0
// The Session RPC: decode a report, hand it to the run, write what the run says.
#pragma once

#include "proto/ddprun.grpc.pb.h"
#include "rendezvous/completion_threads.h"
#include "rendezvous/peer_guard.h"
#include "rendezvous/run_registry.h"

namespace ddprun {

class SessionService final
    : public v1::Rendezvous::WithAsyncMethod_Session<v1::Rendezvous::Service> {
 public:
  SessionService(RunRegistry& registry, PeerGuard& guard) : registry_(registry), guard_(guard) {}

  // Once the server is built.
  void Serve(CompletionThreads& threads);

 private:
  void Await(CompletionThreads& threads, grpc::ServerCompletionQueue& queue);

  RunRegistry& registry_;
  PeerGuard& guard_;
};

}  // namespace ddprun
