// SPDX-License-Identifier: Apache-2.0
// A user's own certificates: read and checked before anything starts, so that a wrong file is one
// sentence and not a handshake that fails on every node.
#pragma once

#include "absl/status/statusor.h"
#include "rendezvous/security/credentials.h"

namespace ddprun {

// Reads --tls-cert, --tls-key and --tls-ca. NOT_FOUND or INVALID_ARGUMENT, with the flag and file
// named: a file that is missing, not PEM, encrypted, expired, or a key of another certificate.
absl::StatusOr<TlsCredentials> ReadPemFiles(const SecurityOptions& options);

}  // namespace ddprun
