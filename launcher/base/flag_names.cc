// SPDX-License-Identifier: Apache-2.0
#include "launcher/base/flag_names.h"

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "launcher/base/flags.h"

namespace ddprun {
namespace {

// Levenshtein's.
std::size_t Distance(absl::string_view a, absl::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i + 1;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, diagonal + 1});
    }
  }
  return row.back();
}

// The flag of that name, or the only one that begins so. Where one flag's name begins another's
// (--log, --log-dir) the short one is meant.
const Flag* FindFlag(absl::Span<const Flag> flags, const std::string& name) {
  const Flag* found = nullptr;
  for (const Flag& flag : flags) {
    if (!absl::StartsWith(flag.name, name)) continue;
    if (flag.name == name) return &flag;
    if (found == nullptr || absl::StartsWith(found->name, flag.name)) {
      found = &flag;
    } else if (!absl::StartsWith(flag.name, found->name)) {
      return nullptr;
    }
  }
  return found;
}

const Flag* FindLetter(absl::Span<const Flag> flags, char letter) {
  const auto found = std::find_if(flags.begin(), flags.end(),
                                  [&](const Flag& flag) { return flag.letter == letter; });
  return found == flags.end() ? nullptr : &*found;
}

const Flag* FindAlias(absl::Span<const Flag> flags, const std::string& name) {
  const auto found = std::find_if(flags.begin(), flags.end(), [&](const Flag& flag) {
    return std::find(flag.aliases.begin(), flag.aliases.end(), name) != flag.aliases.end();
  });
  return found == flags.end() ? nullptr : &*found;
}

bool IsGeneral(const std::string& argument) {
  return argument == "-h" || argument == "--help" || argument == "--version";
}

}  // namespace

std::string WithDashes(absl::string_view name) { return absl::StrReplaceAll(name, {{"_", "-"}}); }

std::vector<std::string> CanonicalArguments(absl::Span<const Flag> flags,
                                            const std::vector<std::string>& arguments) {
  std::vector<std::string> canonical = arguments;
  for (std::size_t i = 0; i < canonical.size(); ++i) {
    std::string& argument = canonical[i];
    if (argument.size() < 2 || argument[0] != '-' || argument == "--") break;
    if (IsGeneral(argument)) continue;
    const std::size_t end = std::min(argument.find('='), argument.size());
    const std::string name = WithDashes(absl::string_view(argument).substr(0, end));
    const Flag* flag = FindAlias(flags, name);
    if (flag == nullptr && argument[1] != '-') {
      flag = FindLetter(flags, argument[1]);
      if (flag == nullptr) break;
      if (flag->value != nullptr && argument.size() == 2) ++i;
      if (flag->value != nullptr && argument.size() > 2 && argument[2] == '=') argument.erase(2, 1);
      continue;
    }
    if (flag == nullptr) flag = FindFlag(flags, name);
    if (flag == nullptr) break;
    if (flag->value != nullptr && end == argument.size()) ++i;
    argument.replace(0, end, flag->name);
  }
  return canonical;
}

std::string NearestName(absl::string_view word, const std::vector<std::string>& names) {
  const std::string wanted = WithDashes(word);
  std::string nearest;
  std::size_t least = std::max<std::size_t>(2, wanted.size() / 4) + 1;
  for (const std::string& name : names) {
    const std::size_t distance =
        wanted.size() > 3 && absl::StartsWith(name, wanted) ? 1 : Distance(wanted, name);
    if (distance < least) {
      least = distance;
      nearest = name;
    }
  }
  return nearest;
}

std::string DidYouMean(absl::string_view word, const std::vector<std::string>& names) {
  const std::string nearest = NearestName(word, names);
  return nearest.empty() ? "" : absl::StrCat(" (did you mean ", nearest, "?)");
}

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
