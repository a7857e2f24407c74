// SPDX-License-Identifier: Apache-2.0
// What a process proves itself with over TCP: certificates derived from the run's secret, or the
// user's own. No gRPC here: PEM texts, as TLS wants them.
//
// The secret gives, by HKDF-SHA256, the Ed25519 key of a certificate authority that is the same on
// every node. Each process signs a fresh key of its own with it and forgets the authority's key and
// the secret at once, so that a running process holds neither.
#pragma once

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "rendezvous/token.h"

namespace ddprun {

struct TlsCredentials {
  std::string ca_pem;     // who must have signed the other side
  std::string chain_pem;  // this side's certificate, then those between it and the authority
  std::string key_pem;
  // The certificates come from the token: names in them are ddprun's, and a node's certificate has
  // its id. Otherwise they are a user's own, and the service's has the name that nodes reach it by.
  bool derived = false;
  // Of derived ones: tells members from strangers in a ClientHello (hello_tag.h).
  std::string hello_key;
};

// In the service's certificate, whatever its address is: a derived authority signs for one run's
// nodes only, and any of them may host the service. Names below it stand there too: those that
// nodes ask for (hello_tag.h).
inline constexpr char kServiceName[] = "rendezvous.ddprun";

// "ddprun://node/ID", with what may not stand in a URI as %XX.
std::string NodeUri(absl::string_view node_id);

// INTERNAL if OpenSSL fails, which needs a broken installation.
absl::StatusOr<TlsCredentials> MintNodeCredentials(const Token& token, absl::string_view node_id);
absl::StatusOr<TlsCredentials> MintServiceCredentials(const Token& token);

// The certificate authority of a secret, in PEM: the same text on every machine.
absl::StatusOr<std::string> DeriveAuthority(const Token& token);

// What both programs take as flags.
struct SecurityOptions {
  std::string token_file;  // empty: DDPRUN_TOKEN or the default file
  bool insecure = false;
  std::string tls_cert;
  std::string tls_key;
  std::string tls_ca;
};

// INVALID_ARGUMENT if they contradict each other.
absl::Status CheckSecurityOptions(const SecurityOptions& options);

// The secret as the options say, read or made; nullopt where none is used (plain text, the user's
// own certificates). `variable`: what TakeTokenVariable() gave.
absl::StatusOr<std::optional<Token>> OpenToken(const SecurityOptions& options,
                                               std::optional<absl::StatusOr<Token>> variable,
                                               const GetVariable& get_variable);

// What credentials are made of: nothing (plain text), the user's files, or the secret.
class Security {
 public:
  // Plain text.
  Security() = default;

  // Reads and checks the files that `options` name. `variable`: what TakeTokenVariable() gave.
  static absl::StatusOr<Security> Open(const SecurityOptions& options,
                                       std::optional<absl::StatusOr<Token>> variable,
                                       const GetVariable& get_variable);

  // nullopt: plain text.
  absl::StatusOr<std::optional<TlsCredentials>> ForNode(absl::string_view node_id) const;
  absl::StatusOr<std::optional<TlsCredentials>> ForService() const;

  // Once no more credentials are needed.
  void Forget() { token_.reset(); }

 private:
  std::optional<Token> token_;
  std::optional<TlsCredentials> own_;
};

}  // namespace ddprun
