// SPDX-License-Identifier: Apache-2.0
// A node of a benchmark's run: a session with the service, and the agent's store on a unix socket.
#pragma once

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "proto/version.h"
#include "rendezvous/client/session_client.h"
#include "rendezvous/proxy/store_proxy.h"
#include "rendezvous/security/credentials.h"
#include "rendezvous/wire/service_channel.h"

namespace ddprun {

class BenchNode {
 public:
  struct Options {
    std::string run_id;
    std::string name;
    int nodes = 1;  // of the run
    std::string socket_path;
    std::shared_ptr<StoreConnector> connector = nullptr;  // of the service's own node
    std::optional<TlsCredentials> credentials;            // absent: plain text
  };

  // Joins the run. Ends the process if that fails, as does WaitForStart().
  BenchNode(const std::string& target, Options options)
      : channel_(MakeServiceChannel(target, std::move(options.credentials))) {
    Join join;
    join.protocol_version = kProtocolVersion;
    join.software_version = kSoftwareVersion;
    join.run_id = options.run_id;
    join.node_id = NodeId{options.name};
    join.host = options.name;
    join.nodes_min = join.nodes_max = options.nodes;
    join.address = "127.0.0.1";
    join.worker_port = 1;
    join.join_timeout = kTimeout;
    session_ = SessionClient::Open(channel_, join, kTimeout, [this](SessionEvent event) {
      const auto* directive = std::get_if<Directive>(&event);
      if (directive != nullptr && std::holds_alternative<Start>(*directive)) started_.set_value();
    });
    auto proxy = StoreProxy::Start({.socket_path = options.socket_path,
                                    .channel = channel_,
                                    .connector = std::move(options.connector),
                                    .run_id = options.run_id,
                                    .node_id = NodeId{options.name}});
    if (!proxy.ok()) Fail(std::string(proxy.status().message()));
    proxy_ = *std::move(proxy);
  }

  // Until all nodes of the run have joined.
  void WaitForStart() {
    if (started_.get_future().wait_for(kTimeout) != std::future_status::ready) Fail("no round");
    proxy_->SetRound(RoundId{1});
  }

  // Serves torch's TCPStore too, at the port that is returned.
  int ServeTcpStore() {
    absl::StatusOr<ListeningSocket> listener = ListenOn("127.0.0.1", 0);
    if (!listener.ok()) Fail(std::string(listener.status().message()));
    const int port = listener->port;
    if (!proxy_->ServeTcpStore(*std::move(listener)).ok()) Fail("cannot serve TCPStore");
    return port;
  }

 private:
  static constexpr std::chrono::seconds kTimeout{60};

  [[noreturn]] static void Fail(const std::string& what) {
    std::fprintf(stderr, "%s: %s\n", program_invocation_short_name, what.c_str());
    std::_Exit(1);
  }

  std::promise<void> started_;
  std::shared_ptr<ServiceChannel> channel_;
  std::unique_ptr<SessionClient> session_;
  std::unique_ptr<StoreProxy> proxy_;
};

}  // namespace ddprun
