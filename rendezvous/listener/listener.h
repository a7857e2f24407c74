// SPDX-License-Identifier: Apache-2.0
// Accepts a server's connections in gRPC's place. It closes those of other users (unix sockets),
// holds each until its first bytes are those of a client that this server can serve, sends the
// others the reason where their protocol allows it, and hands the rest to gRPC, never more at a
// time than Handshakes allows, members before strangers. One thread; a silent peer costs one file
// descriptor.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "rendezvous/base/addresses.h"
#include "rendezvous/base/limits.h"
#include "rendezvous/listener/handshakes.h"
#include "rendezvous/security/credentials.h"

namespace ddprun {

class Listener {
 public:
  enum class Peers {
    kTls,        // over a network, TLS 1.3
    kPlainText,  // over a network, HTTP/2 as it is
    kSameUser,   // over a unix socket, of this process's user or root
  };

  struct Options {
    Peers peers = Peers::kTls;
    std::chrono::milliseconds handshake_timeout = kHandshakeTimeout;
    std::chrono::milliseconds handshake_patience = kHandshakePatience;
    std::size_t silent_max = kSilentConnectionsMax;
    std::string hello_key;   // of members' tags (hello_tag.h); empty: there are none
    CertificateTimes times;  // of this service's certificate
    // Called on the listener's thread for a member that it rejects, at most once in
    // kRejectionInterval: a tag can be recorded and repeated.
    std::function<void(const std::string& address, const absl::Status& why)> on_rejected;
  };

  // Called on the listener's thread with a connection to serve; owns the descriptor from then on.
  using HandOver = std::function<void(int fd)>;

  Listener(ListeningSocket socket, Options options, HandOver hand_over);

  // Closes what was not handed over, removes a unix socket's file.
  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  // `peer`, as gRPC names it, has made a call. Threadsafe.
  void Proven(absl::string_view peer);

 private:
  class Loop;
  const std::unique_ptr<Loop> loop_;
};

}  // namespace ddprun
