// SPDX-License-Identifier: Apache-2.0
// A peer that means harm: bytes over TCP, over TLS with any certificate, and HTTP/2 frames by hand,
// well-formed or not.
#pragma once

#include <openssl/ssl.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "rendezvous/base/owned_fd.h"
#include "rendezvous/security/credentials.h"

namespace ddprun {

class HostilePeer {
 public:
  // Connects to 127.0.0.1. `timeout_seconds`: of one blocking call.
  explicit HostilePeer(int port, int timeout_seconds = 10);

  struct Tls {
    std::optional<TlsCredentials> credentials;  // absent: no certificate
    int version_max = TLS1_3_VERSION;
    bool alpn = true;  // "h2"
  };
  // Does not check who the server is. False if the handshake fails on this side; the server may
  // still refuse afterwards.
  bool StartTls(const Tls& tls);

  // False if the other side has closed or reads no more.
  bool Send(const std::string& bytes);
  void EndSending();

  // All that comes until the other side closes, or `until` has come.
  struct Received {
    std::string bytes;
    bool closed = false;
  };
  Received Receive(std::chrono::milliseconds patience, const std::string& until = "");

 private:
  struct Free {
    void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
    void operator()(SSL* ssl) const { SSL_free(ssl); }
  };
  OwnedFd fd_;
  std::unique_ptr<SSL_CTX, Free> context_;
  std::unique_ptr<SSL, Free> ssl_;
};

// ---- HTTP/2 and gRPC by hand

inline constexpr char kHttp2Preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

std::string BigEndian(std::uint64_t number, int width);
std::string Http2Frame(int type, int flags, std::uint32_t stream, const std::string& payload);

// HPACK: literal, not indexed, not compressed.
std::string Header(const std::string& name, const std::string& value);

// The header block of a gRPC call.
std::string CallHeaders(const std::string& path);

// Preface, settings and the begin of a call on stream 1.
std::string BeginCall(const std::string& path);

// A gRPC message in one DATA frame on stream 1.
std::string GrpcMessage(const std::string& bytes);

inline constexpr char kSessionPath[] = "/ddprun.v1.Rendezvous/Session";
inline constexpr char kStorePath[] = "/ddprun.v1.Store/Exchange";

}  // namespace ddprun
