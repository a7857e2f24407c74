// SPDX-License-Identifier: Apache-2.0
#include "proto/text.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace ddprun {

std::string HostPort(const std::string& host, int port) {
  const bool bare_v6 = absl::StrContains(host, ':') && !absl::StartsWith(host, "[");
  return bare_v6 ? absl::StrCat("[", host, "]:", port) : absl::StrCat(host, ":", port);
}

std::string OneLine(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

std::string CutText(std::string text, std::size_t bytes_max) {
  if (text.size() <= bytes_max) return text;
  std::size_t size = bytes_max;
  // At most three bytes back: text that is not UTF-8 has no character boundary to find.
  for (int i = 0; i < 3 && size > 0; ++i) {
    if ((static_cast<unsigned char>(text[size]) & 0xC0) != 0x80) break;
    --size;
  }
  text.resize(size);
  return text;
}

std::string ShellQuote(const std::string& word) {
  const bool plain = !word.empty() && std::all_of(word.begin(), word.end(), [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || absl::StrContains("%+,-./:=@_", c);
  });
  return plain ? word : absl::StrCat("'", absl::StrReplaceAll(word, {{"'", "'\\''"}}), "'");
}

}  // namespace ddprun
