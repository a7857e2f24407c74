// SPDX-License-Identifier: Apache-2.0
// What a service's streams ask about the peer behind them: whether it may call itself by a node's
// id, and that the listener be told of its first call.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "rendezvous/listener.h"

namespace ddprun {

// Threadsafe.
class PeerGuard {
 public:
  enum class NodeIds {
    kInCertificate,  // derived credentials: the node's id is in its certificate
    kNotProven,      // plain text, a unix socket, or a user's own certificates
  };

  explicit PeerGuard(NodeIds node_ids) : node_ids_(node_ids) {}

  // nullptr: it ends.
  void SetListener(Listener* listener);

  // For ServerBuilder: tells the listener of every call that begins, of whichever service. But of
  // the streams on completion queues of our own, whose peer gRPC 1.51 does not know yet at that
  // time: these must say so themselves.
  std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> MakeCallWatcher();
  void Called(const std::string& peer);

  // PERMISSION_DENIED if the peer's certificate was made for another node.
  absl::Status CheckNodeId(const grpc::ServerContextBase& context,
                           const std::string& node_id) const;

 private:
  class CallWatcher;

  const NodeIds node_ids_;
  absl::Mutex mutex_;
  Listener* listener_ ABSL_GUARDED_BY(mutex_) = nullptr;
};

}  // namespace ddprun
