// SPDX-License-Identifier: Apache-2.0
// A user's own certificates: read and checked before anything starts, so that a wrong file is one
// sentence and not a handshake that fails on every node.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "rendezvous/security/credentials.h"

namespace ddprun {

struct PemFiles {
  std::string cert;  // empty, with the key: none
  std::string key;
  std::string ca;
  std::string flags = "--tls";  // the flags that named them begin so: "--tls-cert"
};

// NOT_FOUND or INVALID_ARGUMENT, with the flag and file named: a file that is missing, not PEM,
// encrypted, expired, or a key of another certificate.
absl::StatusOr<TlsCredentials> ReadPemFiles(const PemFiles& files);

}  // namespace ddprun
