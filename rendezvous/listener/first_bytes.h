// SPDX-License-Identifier: Apache-2.0
// What a connection is, by its first bytes. They are read before gRPC accepts the connection, so
// that a peer which never begins a handshake costs one file descriptor, and a node that was started
// the wrong way is told so in its own protocol. OpenSSL parses the ClientHello.
#pragma once

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"

namespace ddprun {

struct FirstBytes {
  enum class Kind {
    kIncomplete,  // more must come
    kTls13,       // a ClientHello that offers TLS 1.3
    kTlsOlder,    // a ClientHello that does not
    kHttp2,       // HTTP/2's preface, in plain text
    kOther,
  };
  Kind kind = Kind::kOther;
  std::string server_name;  // of kTls13: the host name that the client asks for (SNI), if any
};

// One TLS record. OpenSSL's ClientHello has 200 to 2000 bytes.
inline constexpr std::size_t kFirstBytesMax = 5 + 16384;

// Threadsafe.
FirstBytes ReadFirstBytes(absl::string_view bytes);

// ---- What to answer before closing

// TLS alerts (RFC 8446, section 6.2): this port accepts only TLS 1.3; this port has no TLS at all.
// No TLS server of gRPC's sends the second.
inline constexpr absl::string_view kProtocolVersionAlert("\x15\x03\x03\0\2\2\x46", 7);
inline constexpr absl::string_view kInsufficientSecurityAlert("\x15\x03\x03\0\2\2\x47", 7);
// To members: the client's certificate has expired; this service's has (certificate_unknown, since
// there is no alert for that).
inline constexpr absl::string_view kClientExpiredAlert("\x15\x03\x03\0\2\2\x2d", 7);
inline constexpr absl::string_view kServiceExpiredAlert("\x15\x03\x03\0\2\2\x2e", 7);

// To HTTP/2 in plain text where the port has TLS: an empty SETTINGS frame, then the reply to the
// first call of a connection, which gRPC's clients all make on stream 1. A client ignores a reply
// to a call that it has not begun yet, so the reply is repeated.
inline constexpr absl::string_view kHttp2Settings("\0\0\0\4\0\0\0\0\0", 9);
// HEADERS (RFC 9113, section 6.2) that end stream 1: status 200, then three literals that are not
// indexed (RFC 7541, section 6.2.2), each with its lengths. 16 is UNAUTHENTICATED.
inline constexpr char kNeedsTlsBytes[] =
    "\0\0\x85\1\5\0\0\0\1\x88"
    "\0\x0c"
    "content-type"
    "\x10"
    "application/grpc"
    "\0\x0b"
    "grpc-status"
    "\2"
    "16"
    "\0\x0c"
    "grpc-message"
    "\x46"
    "this rendezvous service speaks TLS; start this node without --insecure";
inline constexpr absl::string_view kNeedsTlsReply(kNeedsTlsBytes, sizeof kNeedsTlsBytes - 1);
static_assert(kNeedsTlsReply.size() == 9 + 0x85);

}  // namespace ddprun
