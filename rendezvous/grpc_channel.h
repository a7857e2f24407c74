// SPDX-License-Identifier: Apache-2.0
// How this project uses gRPC: one set of channel and server arguments, for the room's own files
// only.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>

#include "proto/ddprun.grpc.pb.h"
#include "rendezvous/session_client.h"

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

// A channel of its own, not shared with others to the same target.
std::shared_ptr<grpc::Channel> MakeChannel(const std::string& target);

// "connection refused" from "failed to connect to all addresses; last error: UNKNOWN:
// ipv4:127.0.0.1:1: Failed to connect to remote host: Connection refused".
std::string ReasonInWords(const grpc::Status& status, const std::string& target);

absl::Status ToAbsl(const grpc::Status& status);

class ServiceChannel {
 public:
  ServiceChannel(std::string target, std::shared_ptr<grpc::Channel> channel)
      : target_(std::move(target)), channel_(std::move(channel)) {}

  const std::string& target() const { return target_; }
  const std::shared_ptr<grpc::Channel>& channel() const { return channel_; }

 private:
  const std::string target_;
  const std::shared_ptr<grpc::Channel> channel_;
};

}  // namespace ddprun
