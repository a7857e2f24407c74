// SPDX-License-Identifier: Apache-2.0
// Authorizes the peers of a service's streams: the node ids that a peer may use, the runs that it
// may query, its origin; and reports each peer's first call to the listener.
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

  // `default_run_id`: the run of peers that name none.
  PeerGuard(NodeIds node_ids, std::optional<std::string> default_run_id)
      : node_ids_(node_ids), default_run_id_(std::move(default_run_id)) {}

  // Null: the listener ends.
  void SetListener(Listener* listener);

  // For ServerBuilder: reports every call of any service to the listener, except the streams on our
  // own completion queues, whose peer gRPC 1.51 does not know yet at that time: these call
  // Called().
  std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> MakeCallWatcher();
  void Called(const std::string& peer);

  // PERMISSION_DENIED if the peer's certificate was made for another node, or for another run.
  absl::Status CheckNode(const grpc::ServerContextBase& context, const std::string& run_id,
                         const std::string& node_id) const;

  // The run that a query for `run_id` may be answered about; empty: none is named, and the peer may
  // query all. PERMISSION_DENIED: its certificate is for another run.
  absl::StatusOr<std::string> RunToAskAbout(const grpc::ServerContextBase& context,
                                            const std::string& run_id) const;

  // PERMISSION_DENIED: the peer is a node, or an operator of one run where `of_all_runs` is asked
  // for. A user's own certificates tell nobody apart.
  absl::Status CheckOperator(const grpc::ServerContextBase& context, bool of_all_runs) const;

  // The key under which a peer's runs are counted: its certificate, or its address.
  std::string OriginOf(const grpc::ServerContextBase& context) const;

 private:
  class CallWatcher;

  const NodeIds node_ids_;
  const std::optional<std::string> default_run_id_;
  absl::Mutex mutex_;
  Listener* listener_ ABSL_GUARDED_BY(mutex_) = nullptr;
};

}  // namespace ddprun
