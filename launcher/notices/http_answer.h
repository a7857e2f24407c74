// SPDX-License-Identifier: Apache-2.0
// Reads the answer to an HTTP/1.1 request. Pure.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ddprun {

struct HttpAnswer {
  int status = 0;
  std::map<std::string, std::string> headers;  // by their names in lower case
  std::string body;
};

// Of all bytes so far. Absent: more are to come. `ended`: none are. INVALID_ARGUMENT: this is no
// answer of HTTP, or it is cut off.
absl::StatusOr<std::optional<HttpAnswer>> ParseHttpAnswer(absl::string_view bytes, bool ended);

}  // namespace ddprun
