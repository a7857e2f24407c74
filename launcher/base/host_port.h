// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "absl/strings/str_cat.h"

namespace ddprun {

// "10.0.0.1:29500", "[fe80::1]:29500".
inline std::string JoinHostPort(const std::string& host, int port) {
  return host.find(':') != std::string::npos ? absl::StrCat("[", host, "]:", port)
                                             : absl::StrCat(host, ":", port);
}

}  // namespace ddprun
