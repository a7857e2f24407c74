// SPDX-License-Identifier: Apache-2.0
// This project's channel and server arguments for gRPC. For this room only.
#pragma once

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

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

// How soon a peer that does not answer is given up.
enum class ChannelPatience {
  kLong,               // there is no other one
  kShort,              // another one can be asked: kOtherPeerTimeout
  kShortWithoutPings,  // likewise, and the peer closes connections with many pings, as etcd does
};

// A new channel, not shared with others to the same target. `server_name`: as in
// MakeServiceChannel().
std::shared_ptr<grpc::Channel> MakeChannel(const std::string& target,
                                           const std::optional<TlsCredentials>& credentials = {},
                                           const std::string& server_name = "",
                                           ChannelPatience patience = ChannelPatience::kLong);

absl::Status ToAbsl(const grpc::Status& status);
grpc::Status ToGrpc(const absl::Status& status);

class ServiceChannel {
 public:
  ServiceChannel(std::string target, std::optional<TlsCredentials> credentials,
                 const std::string& server_name);

  const std::string& target() const { return target_; }
  // How many services it has the addresses of: one of them leads.
  std::size_t services() const { return channels_.size(); }
  // To the service that is asked now.
  const std::shared_ptr<grpc::Channel>& channel() const { return channels_[asked_]; }
  // From now on the next service is asked.
  void AskNext() { asked_ = (asked_ + 1) % channels_.size(); }
  std::optional<absl::Status> FinalReason(const grpc::Status& status) const {
    return ddprun::FinalReason(status, target_, credentials_);
  }

 private:
  const std::string target_;
  const std::optional<TlsCredentials> credentials_;
  std::vector<std::shared_ptr<grpc::Channel>> channels_;
  std::atomic<std::size_t> asked_ = 0;
};

// In the first headers of a session's reply, by which a service that leads differs from one that
// stands by and has rejected the call.
inline constexpr char kServesHeader[] = "ddprun-serves";

// The error of a single call that failed, as one sentence. UNAVAILABLE, DEADLINE_EXCEEDED: the
// service was not reached. FAILED_PRECONDITION: the credentials do not fit what answers, or it does
// not know this call. Otherwise: the service's own status.
absl::Status CallError(const ServiceChannel& channel, const grpc::Status& status,
                       std::chrono::milliseconds timeout);

}  // namespace ddprun
