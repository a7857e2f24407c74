// SPDX-License-Identifier: Apache-2.0
// One request over plain HTTP/1.1, for the metadata servers of clouds: OpenSSL's client
// (https_post.h) has no PUT, which AWS wants. Blocks: call it on a thread of its own.
#pragma once

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "launcher/base/flags.h"
#include "launcher/notices/http_answer.h"

namespace ddprun {

struct HttpRequest {
  std::string method = "GET";
  std::string target;  // the path, with what follows it
  std::vector<std::pair<std::string, std::string>> headers;
  std::chrono::milliseconds timeout{0};  // for the connection and the answer together
};

// Without a proxy, and without following what redirects. UNAVAILABLE: no answer, and why.
absl::StatusOr<HttpAnswer> SendHttp(const Endpoint& server, const HttpRequest& request);

}  // namespace ddprun
