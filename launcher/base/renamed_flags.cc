// SPDX-License-Identifier: Apache-2.0
#include "launcher/base/renamed_flags.h"

#include <cstdlib>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace ddprun {
namespace {

bool GoesOn(char c) { return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-'; }

// True if `text` begins with `flag` and not with a longer flag.
bool BeginsWith(absl::string_view text, absl::string_view flag) {
  if (!absl::StartsWith(text, flag)) return false;
  return text.size() == flag.size() || !GoesOn(text[flag.size()]);
}

}  // namespace

std::string RenameFlags(absl::string_view text, absl::string_view names) {
  std::string out;
  while (!text.empty()) {
    const std::size_t at = text.find("--");
    absl::StrAppend(&out, text.substr(0, at));
    if (at == absl::string_view::npos) break;
    text.remove_prefix(at);
    absl::string_view flag = text.substr(0, 2);
    absl::string_view name = flag;
    for (const absl::string_view entry :
         absl::StrSplit(names, absl::ByAnyChar(" \n"), absl::SkipEmpty())) {
      const std::pair<absl::string_view, absl::string_view> pair =
          absl::StrSplit(entry, absl::MaxSplits('=', 1));
      if (!absl::StartsWith(pair.first, "--") || !BeginsWith(text, pair.first)) continue;
      flag = pair.first;
      name = pair.second;
    }
    absl::StrAppend(&out, name);
    text.remove_prefix(flag.size());
  }
  return out;
}

std::string ForUsers(absl::string_view text) {
  const char* const names = std::getenv(kFlagNamesVariable);
  return names == nullptr ? std::string(text) : RenameFlags(text, names);
}

}  // namespace ddprun
