// SPDX-License-Identifier: Apache-2.0
// One HTTPS request, by OpenSSL's own HTTP client. Blocks: call it on a thread of its own.
#pragma once

#include <chrono>
#include <string>

#include "absl/status/status.h"

namespace ddprun {

struct HttpsPost {
  std::string url;      // https://HOST[:PORT]/PATH; a proxy of the environment is not used
  std::string ca_file;  // PEM: the authorities that may have signed the server's certificate
  std::string bearer;   // the token
  std::string body;     // JSON
  std::chrono::seconds timeout{1};  // for the connection and the answer together
};

// INVALID_ARGUMENT: the URL, or a token that is no header. UNAVAILABLE: any other reason, with the
// server's status where it answered, without the token.
absl::Status Post(const HttpsPost& post);

}  // namespace ddprun
