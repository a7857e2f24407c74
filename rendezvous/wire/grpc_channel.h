// SPDX-License-Identifier: Apache-2.0
// This project's channel and server arguments for gRPC. For this room only.
#pragma once

#include <grpcpp/grpcpp.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "proto/ddprun.grpc.pb.h"
#include "rendezvous/security/credentials.h"
#include "rendezvous/wire/channel_failure.h"
#include "rendezvous/wire/service_channel.h"

namespace ddprun {

// Must be called before the first use of gRPC; later calls do nothing. Turns off gRPC's log, which
// reports every refused connection on stderr, unless GRPC_VERBOSITY is set: our own error sentences
// say what a user must know. Keeps gRPC's callback threads until the process ends.
void PrepareGrpc();

// For the server's side.
void SetServerArguments(grpc::ServerBuilder& builder);
// Detects peers that are gone without closing the connection. Not for unix sockets: there the
// kernel reports a peer's death, and a worker that is stopped in a debugger is not dead.
void SetServerKeepalive(grpc::ServerBuilder& builder);

// The server accepts connections from a Listener only. Must be called before BuildAndStart().
std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> AddAcceptor(
    grpc::ServerBuilder& builder, const std::optional<TlsCredentials>& credentials);
// The returned function takes ownership of the descriptor.
std::function<void(int fd)> HandOverTo(grpc::experimental::ExternalConnectionAcceptor& acceptor);

// A new channel, not shared with others to the same target. `server_name`: as in
// MakeServiceChannel().
std::shared_ptr<grpc::Channel> MakeChannel(const std::string& target,
                                           const std::optional<TlsCredentials>& credentials = {},
                                           const std::string& server_name = "");

absl::Status ToAbsl(const grpc::Status& status);
grpc::Status ToGrpc(const absl::Status& status);

class ServiceChannel {
 public:
  ServiceChannel(std::string target, std::optional<TlsCredentials> credentials,
                 const std::string& server_name)
      : target_(std::move(target)),
        credentials_(std::move(credentials)),
        channel_(MakeChannel(target_, credentials_, server_name)) {}

  const std::string& target() const { return target_; }
  const std::shared_ptr<grpc::Channel>& channel() const { return channel_; }
  std::optional<absl::Status> FinalReason(const grpc::Status& status) const {
    return ddprun::FinalReason(status, target_, credentials_);
  }

 private:
  const std::string target_;
  const std::optional<TlsCredentials> credentials_;
  const std::shared_ptr<grpc::Channel> channel_;
};

// The error of a single call that failed, as one sentence. UNAVAILABLE, DEADLINE_EXCEEDED: the
// service was not reached. FAILED_PRECONDITION: the credentials do not fit what answers, or it does
// not know this call. Otherwise: the service's own status.
absl::Status CallError(const ServiceChannel& channel, const grpc::Status& status,
                       std::chrono::milliseconds timeout);

}  // namespace ddprun
