// SPDX-License-Identifier: Apache-2.0
// A user's own certificates: read and checked before anything starts, so that a wrong file is one
// sentence and not a handshake that fails on every node.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "rendezvous/security/credentials.h"

namespace ddprun {

struct PemFiles {
  std::string cert;  // --tls-cert: this side's certificate, then those that signed it
  std::string key;   // --tls-key
  std::string ca;    // --tls-ca: who must have signed the other side
};

// NOT_FOUND, PERMISSION_DENIED or INVALID_ARGUMENT, with the flag and the file named: a file that
// is missing, not PEM, encrypted, expired, or a key of another certificate.
absl::StatusOr<TlsCredentials> ReadPemFiles(const PemFiles& files);

}  // namespace ddprun
