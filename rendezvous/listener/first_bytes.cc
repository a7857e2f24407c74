// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/listener/first_bytes.h"

#include <openssl/err.h>
#include <openssl/ssl.h>

#include <cstdint>

#include "absl/strings/match.h"
#include "rendezvous/security/openssl_ptr.h"

namespace ddprun {
namespace {

using Kind = FirstBytes::Kind;

constexpr absl::string_view kPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
constexpr std::size_t kRecordHeaderBytes = 5;
constexpr char kHandshakeRecord = 0x16;

// Called once OpenSSL has chosen TLS 1.3 and parsed all extensions, also without a server name.
// Ends the handshake there, before it costs anything.
int OnServerName(SSL* ssl, int* /*alert*/, void* /*argument*/) {
  auto* const found = static_cast<FirstBytes*>(SSL_get_app_data(ssl));
  const char* const name = SSL_get_servername(ssl, TLSEXT_NAMETYPE_host_name);
  *found = {Kind::kTls13, name == nullptr ? "" : name};
  return SSL_TLSEXT_ERR_ALERT_FATAL;
}

SSL_CTX* HelloContext() {
  static SSL_CTX* const context = [] {
    SSL_CTX* const made = SSL_CTX_new(TLS_server_method());
    SSL_CTX_set_min_proto_version(made, TLS1_3_VERSION);
    SSL_CTX_set_tlsext_servername_callback(made, OnServerName);
    return made;
  }();
  return context;
}

FirstBytes ReadHello(absl::string_view bytes) {
  // OpenSSL does not parse an incomplete record anew for each byte that arrives.
  if (bytes.size() < kRecordHeaderBytes) return {Kind::kIncomplete, ""};
  const auto byte = [&](std::size_t at) { return static_cast<std::uint8_t>(bytes[at]); };
  const std::size_t record = kRecordHeaderBytes + (byte(3) << 8 | byte(4));
  if (record <= kFirstBytesMax && bytes.size() < record) return {Kind::kIncomplete, ""};

  FirstBytes found;
  const OpensslPtr<SSL, SSL_free> ssl(SSL_new(HelloContext()));
  if (ssl == nullptr) return found;  // out of memory
  BIO* const in = BIO_new_mem_buf(bytes.data(), static_cast<int>(bytes.size()));
  BIO_set_mem_eof_return(in, -1);  // its end means "not yet"
  SSL_set_bio(ssl.get(), in, BIO_new(BIO_s_null()));
  SSL_set_app_data(ssl.get(), &found);
  const int result = SSL_accept(ssl.get());
  if (found.kind == Kind::kTls13) {
    // OnServerName() has filled it in.
  } else if (SSL_get_error(ssl.get(), result) == SSL_ERROR_WANT_READ) {
    found.kind = Kind::kIncomplete;
  } else if (const int reason = ERR_GET_REASON(ERR_peek_error());
             reason == SSL_R_UNSUPPORTED_PROTOCOL || reason == SSL_R_VERSION_TOO_LOW) {
    found.kind = Kind::kTlsOlder;
  }
  ERR_clear_error();
  return found;
}

}  // namespace

FirstBytes ReadFirstBytes(absl::string_view bytes) {
  if (bytes.empty()) return {Kind::kIncomplete, ""};
  if (bytes[0] == kHandshakeRecord) return ReadHello(bytes);
  if (absl::StartsWith(bytes, kPreface)) return {Kind::kHttp2, ""};
  return {absl::StartsWith(kPreface, bytes) ? Kind::kIncomplete : Kind::kOther, ""};
}

}  // namespace ddprun
