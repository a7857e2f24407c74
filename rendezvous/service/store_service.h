// SPDX-License-Identifier: Apache-2.0
// The Store RPC: decodes operations, passes them to the run's store, writes the replies in their
// order.
#pragma once

#include <memory>

#include "proto/ddprun.grpc.pb.h"
#include "rendezvous/listener/peer_guard.h"
#include "rendezvous/service/reply_room.h"
#include "rendezvous/service/run_registry.h"
#include "rendezvous/streams/completion_threads.h"

namespace ddprun {

class StoreService final : public v1::Store::WithAsyncMethod_Exchange<v1::Store::Service> {
 public:
  StoreService(RunRegistry& registry, PeerGuard& guard) : registry_(registry), guard_(guard) {}

  // Once the server is built.
  void Serve(CompletionThreads& threads);

 private:
  RunRegistry& registry_;
  PeerGuard& guard_;
  const std::shared_ptr<ReplyRoom> room_ = std::make_shared<ReplyRoom>();
};

}  // namespace ddprun
