// SPDX-License-Identifier: Apache-2.0
// How this project uses gRPC: one set of channel and server arguments, for the room's own files
// only.
#pragma once

#include <grpcpp/grpcpp.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "proto/ddprun.grpc.pb.h"
#include "rendezvous/security/credentials.h"
#include "rendezvous/wire/service_channel.h"

namespace ddprun {

// Before the first use of gRPC; later calls do nothing. Turns its log off, which reports every
// refused connection on stderr, unless the user has set GRPC_VERBOSITY: what a person must know is
// in our own sentences. And keeps its callback threads until the process ends.
void PrepareGrpc();

// For the server's side.
void SetServerArguments(grpc::ServerBuilder& builder);
// Over a network the silence of a peer means something. Not for unix sockets: there the kernel
// reports a peer's death, and a worker that a debugger has stopped is not dead.
void SetServerKeepalive(grpc::ServerBuilder& builder);

// The server takes connections from a Listener and from nowhere else. Before BuildAndStart().
std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> AddAcceptor(
    grpc::ServerBuilder& builder, const std::optional<TlsCredentials>& credentials);
// Takes the descriptor.
std::function<void(int fd)> HandOverTo(grpc::experimental::ExternalConnectionAcceptor& acceptor);

// A channel of its own, not shared with others to the same target. `server_name`: what the
// service's certificate must be for, where it is a user's own; empty: the target's host.
std::shared_ptr<grpc::Channel> MakeChannel(const std::string& target,
                                           const std::optional<TlsCredentials>& credentials = {},
                                           const std::string& server_name = "");

// "connection refused" from "failed to connect to all addresses; last error: UNKNOWN:
// ipv4:127.0.0.1:1: Failed to connect to remote host: Connection refused".
std::string ReasonInWords(const grpc::Status& status, const std::string& target);

// The peer took the connection and closed it without a word. A service that is just ending does so,
// and is not there any more a moment later.
bool IsCutOff(const grpc::Status& status);

// A sentence if trying again cannot help until a person has changed something: another token, plain
// text on one side, or no ddprun at all.
std::optional<absl::Status> FinalReason(const grpc::Status& status, const std::string& target,
                                        const std::optional<TlsCredentials>& credentials);

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

}  // namespace ddprun
