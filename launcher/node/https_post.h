// SPDX-License-Identifier: Apache-2.0
// One HTTP request, by OpenSSL's own client, mostly over TLS. Blocks: call it on a thread of its
// own.
#pragma once

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"

namespace ddprun {

struct HttpsPost {
  std::string url;  // https://HOST[:PORT]/PATH
  // PEM: the authorities that may have signed the server's certificate; empty: the system's.
  std::string ca_file;
  std::string bearer;  // a token; empty: none
  std::string body;
  std::chrono::seconds timeout{1};  // for the connection and the answer together
  std::string content_type = "application/json";
  bool without_tls = false;    // http:// will do
  bool through_proxy = false;  // the one of https_proxy or http_proxy, unless no_proxy names HOST
  // More headers; none may have a line end.
  std::vector<std::pair<std::string, std::string>> headers{};
};

// INVALID_ARGUMENT: the URL, or a token that is no header. UNAVAILABLE: any other reason, with the
// server's status where it answered, without the token.
absl::Status Post(const HttpsPost& post);

}  // namespace ddprun
