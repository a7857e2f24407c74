// SPDX-License-Identifier: Apache-2.0
// What a service's streams ask about the peer behind them: whether it may call itself by a node's
// id, which runs it may ask about, where it is, and that the listener be told of its first call.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "rendezvous/listener/listener.h"

namespace ddprun {

// Threadsafe.
class PeerGuard {
 public:
  enum class NodeIds {
    kInCertificate,  // derived credentials: the run's and the node's id are in the certificate
    kNotProven,      // plain text, a unix socket, or a user's own certificates
  };

  // `default_run_id`: what a run without a name means.
  PeerGuard(NodeIds node_ids, std::optional<std::string> default_run_id)
      : node_ids_(node_ids), default_run_id_(std::move(default_run_id)) {}

  // nullptr: it ends.
  void SetListener(Listener* listener);

  // For ServerBuilder: tells the listener of every call that begins, of whichever service. But of
  // the streams on completion queues of our own, whose peer gRPC 1.51 does not know yet at that
  // time: these must say so themselves.
  std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> MakeCallWatcher();
  void Called(const std::string& peer);

  // PERMISSION_DENIED if the peer's certificate was made for another node, or for another run.
  absl::Status CheckNode(const grpc::ServerContextBase& context, const std::string& run_id,
                         const std::string& node_id) const;

  // The run that a question about `run_id` may be answered of; empty: none is named, and the peer
  // may ask about all. PERMISSION_DENIED: its certificate is for another one.
  absl::StatusOr<std::string> RunToAskAbout(const grpc::ServerContextBase& context,
                                            const std::string& run_id) const;

  // Peers whose runs are counted together: one certificate, or one address.
  std::string OriginOf(const grpc::ServerContextBase& context) const;

 private:
  class CallWatcher;

  const NodeIds node_ids_;
  const std::optional<std::string> default_run_id_;
  absl::Mutex mutex_;
  Listener* listener_ ABSL_GUARDED_BY(mutex_) = nullptr;
};

}  // namespace ddprun
