// SPDX-License-Identifier: Apache-2.0
// What a connection is, by the first bytes that came over it. Looked at before gRPC or OpenSSL see
// them: whoever does not even begin a handshake costs a file descriptor and nothing else, and a
// node that was started the wrong way is told so in its own protocol. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace ddprun {

enum class FirstBytes {
  kIncomplete,  // more must come
  kTls13,       // a whole ClientHello that offers TLS 1.3
  kTlsOlder,    // a whole ClientHello that does not
  kHttp2,       // HTTP/2's preface, in plain text
  kOther,
};

// A ClientHello is one record; OpenSSL's has 200 to 2000 bytes.
inline constexpr std::size_t kFirstBytesMax = 5 + 16384;

FirstBytes Classify(absl::string_view bytes);

// The host name that a ClientHello which Classify() calls kTls13 asks for (SNI); empty: none.
absl::string_view ServerNameOf(absl::string_view bytes);

// TLS alerts (RFC 8446, 6.2), as the only record that is sent in plain text.
std::string ProtocolVersionAlert();       // "TLS 1.3 or nothing"
std::string InsufficientSecurityAlert();  // "plain text here": no TLS server of gRPC's says that

// Answers the first gRPC call of a client that speaks plain text to a TLS port with a status and a
// sentence, so that the person behind it reads that and not "socket closed".
class PlainTextRefusal {
 public:
  // `sentence`: printable ASCII without '%'.
  explicit PlainTextRefusal(std::string sentence) : sentence_(std::move(sentence)) {}

  // What to send at first.
  std::string Begin() const;

  // `bytes`: what came, from after the preface. What to send; nothing yet while no call has come.
  std::string Feed(absl::string_view bytes);

  bool done() const { return done_; }  // the answer is out; or what came is not HTTP/2

 private:
  std::string Answer(std::uint32_t stream) const;

  const std::string sentence_;
  std::string header_;    // of the frame that is being read
  std::size_t skip_ = 0;  // bytes of a payload still to come
  std::size_t seen_ = 0;
  bool done_ = false;
};

}  // namespace ddprun
