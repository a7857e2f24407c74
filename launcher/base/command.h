// SPDX-License-Identifier: Apache-2.0
// Exit codes, output and quoting that the commands of ddprun share.
#pragma once

#include <algorithm>
#include <cstdio>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "launcher/base/flag_names.h"

namespace ddprun {

inline constexpr int kExitUsage = 2;
inline constexpr int kExitNotExecutable = 126;
inline constexpr int kExitNotFound = 127;

inline int Fail(const absl::Status& status, int exit_code) {
  std::fprintf(stderr, "ddprun: %s\n", ForUsers(status.message()).c_str());
  return exit_code;
}

// A word as a shell reads it back, quoted if needed.
inline std::string ShellQuote(const std::string& word) {
  const bool plain = !word.empty() && std::all_of(word.begin(), word.end(), [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || absl::StrContains("%+,-./:=@_", c);
  });
  return plain ? word : absl::StrCat("'", absl::StrReplaceAll(word, {{"'", "'\\''"}}), "'");
}

inline int Show(const std::string& text) {
  return std::fputs(text.c_str(), stdout) >= 0 && std::fflush(stdout) == 0 ? 0 : 1;
}

}  // namespace ddprun
