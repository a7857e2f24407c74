// SPDX-License-Identifier: Apache-2.0
// TLS credentials: certificates derived from the run's secret, or the user's own. PEM texts,
// without gRPC.
//
// The secret gives, by HKDF-SHA256, the Ed25519 key of a certificate authority that is the same on
// every node. Each process signs a fresh key of its own with it and discards the authority's key
// and the secret at once, so that a running process holds neither. What remains to be stolen is a
// certificate for one run, one name and a limited time.
#pragma once

#include <ctime>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "rendezvous/security/token.h"

namespace ddprun {

// When a derived certificate was made and when it ends, by the clock of the machine that made it.
struct CertificateTimes {
  std::time_t made = 0;  // 0: not known
  std::time_t end = 0;   // 0: never
  bool operator==(const CertificateTimes&) const = default;
};

struct TlsCredentials {
  std::string ca_pem;     // must have signed the other side; of one secret always the same text
  std::string chain_pem;  // this side's certificate, then those between it and the authority
  std::string key_pem;
  // The certificates come from the token: names in them are ddprun's, and a node's certificate has
  // its id. Otherwise they are a user's own, and the service's has the name that nodes reach it by.
  bool derived = false;
  // In derived ones alone: tells members from strangers in a ClientHello (hello_tag.h).
  std::string hello_key;
  CertificateTimes times;  // likewise
};

// In the service's certificate, whatever its address is: a derived authority signs for one run's
// nodes only, and any of them may host the service. Names below it stand there too: those that
// nodes ask for (hello_tag.h).
inline constexpr char kServiceName[] = "rendezvous.ddprun";

// How long certificates of nodes and of commands are valid, from their creation. A node that is in
// a run for longer keeps its connection, but cannot open a new one. The clocks of nodes and service
// may differ by less than that.
inline constexpr std::time_t kNodeCertificateSeconds = 90L * 24 * 3600;
inline constexpr std::time_t kOperatorCertificateSeconds = 7L * 24 * 3600;

// The subject of a certificate, as its alternative name: "ddprun://run/RUN/node/ID", where an
// unnamed run's RUN is empty; "ddprun://run/RUN/operator/NAME"; and "ddprun://operator/NAME", for
// all runs. What may not stand in a URI is %XX.
std::string NodeUri(absl::string_view run_id, absl::string_view node_id);
std::string OperatorUri(const std::optional<std::string>& run_id, absl::string_view name);

// What the holder of such a certificate may query.
struct CertificateScope {
  std::optional<std::string> run_id;  // absent: all runs
  bool is_node = false;               // and no operator
  bool operator==(const CertificateScope&) const = default;
};
// Absent: not a name of ddprun's.
std::optional<CertificateScope> ScopeOfUri(absl::string_view uri);

// Which of two members has the certificate that the other will reject by its own clock. TLS 1.3
// would tell neither of them why.
enum class Expired { kNone, kNode, kService };
// `now`: of the service.
Expired WhichExpired(const CertificateTimes& node, const CertificateTimes& service,
                     std::time_t now);

// INTERNAL if OpenSSL fails, which needs a broken installation.
absl::StatusOr<TlsCredentials> MintNodeCredentials(const Token& token, absl::string_view run_id,
                                                   absl::string_view node_id,
                                                   std::time_t now = std::time(nullptr));
// For a command that queries one run, or all of them, and is no node.
absl::StatusOr<TlsCredentials> MintOperatorCredentials(const Token& token,
                                                       const std::optional<std::string>& run_id,
                                                       absl::string_view name,
                                                       std::time_t now = std::time(nullptr));
// For a service that runs alone: never expires, since it may run for years and cannot sign another.
// The certificate of one inside a node's agent is valid for as long as those of the nodes.
absl::StatusOr<TlsCredentials> MintServiceCredentials(const Token& token);
absl::StatusOr<TlsCredentials> MintHostCredentials(const Token& token,
                                                   std::time_t now = std::time(nullptr));

// For a service that looks whether another one is there. Lets into no call, and never expires.
absl::StatusOr<TlsCredentials> MintProbeCredentials(const Token& token);

// The security flags of both programs.
struct SecurityOptions {
  std::string token_file;  // empty: DDPRUN_TOKEN, systemd's credential or the default file
  bool insecure = false;
  std::string tls_cert;  // files: this side's certificate, then those that signed it,
  std::string tls_key;   // its key,
  std::string tls_ca;    // and who must have signed the other side
};

// INVALID_ARGUMENT if the options contradict each other.
absl::Status CheckSecurityOptions(const SecurityOptions& options);

// The secret that the options select, read or created; nullopt where none is used (plain text, the
// user's own certificates). `variable`: the result of TakeTokenVariable().
absl::StatusOr<std::optional<Token>> OpenToken(const SecurityOptions& options,
                                               std::optional<absl::StatusOr<Token>> variable,
                                               const GetVariable& get_variable);

// The source of credentials: none (plain text), the user's files, or the secret.
class Security {
 public:
  // Plain text.
  Security() = default;

  // Reads and checks the files that `options` name. `variable`: the result of TakeTokenVariable().
  static absl::StatusOr<Security> Open(const SecurityOptions& options,
                                       std::optional<absl::StatusOr<Token>> variable,
                                       const GetVariable& get_variable);

  // nullopt: plain text.
  absl::StatusOr<std::optional<TlsCredentials>> ForNode(absl::string_view run_id,
                                                        absl::string_view node_id) const;
  // `run_id` absent: of all runs.
  absl::StatusOr<std::optional<TlsCredentials>> ForOperator(
      const std::optional<std::string>& run_id, absl::string_view name) const;
  absl::StatusOr<std::optional<TlsCredentials>> ForService() const;
  // For a service inside a node's agent.
  absl::StatusOr<std::optional<TlsCredentials>> ForHost() const;
  // For either, as a client of another service.
  absl::StatusOr<std::optional<TlsCredentials>> ForProbe() const;

  // Once no more credentials are needed.
  void Forget() { token_.reset(); }

 private:
  std::optional<Token> token_;
  std::optional<TlsCredentials> own_;
};

}  // namespace ddprun
