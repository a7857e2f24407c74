// SPDX-License-Identifier: Apache-2.0
#include "launcher/options/log_specs.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "launcher/base/limits.h"

namespace ddprun {
namespace {

constexpr int kOutBit = 1;
constexpr int kErrBit = 2;

absl::string_view View(std::string_view text) { return {text.data(), text.size()}; }

bool ParseStreams(absl::string_view text, int& streams) {
  if (text.size() != 1 || text[0] < '0' || text[0] > '3') return false;
  streams = text[0] - '0';
  return true;
}

bool IsNameCharacter(char c, bool first) {
  return c == '_' || absl::ascii_isalpha(static_cast<unsigned char>(c)) ||
         (!first && absl::ascii_isdigit(static_cast<unsigned char>(c)));
}

std::size_t NameLength(std::string_view text) {
  std::size_t length = 0;
  while (length < text.size() && IsNameCharacter(text[length], length == 0)) ++length;
  return length;
}

bool AppendValue(std::string_view name, const PrefixValues& values, std::string& out) {
  if (name == "role_name") {
    absl::StrAppend(&out, values.role_name);
  } else if (name == "local_rank") {
    absl::StrAppend(&out, values.local_rank);
  } else if (name == "rank") {
    absl::StrAppend(&out, values.rank);
  } else if (name == "hostname") {
    absl::StrAppend(&out, values.hostname);
  } else {
    return false;
  }
  return true;
}

}  // namespace

bool StreamSpec::Has(int local_rank, OutputStream stream) const {
  const int bit = stream == OutputStream::kOut ? kOutBit : kErrBit;
  const auto found = by_local_rank_.find(local_rank);
  return ((found == by_local_rank_.end() ? for_all_ : found->second) & bit) != 0;
}

bool StreamSpec::IsEmpty() const {
  return for_all_ == 0 && std::all_of(by_local_rank_.begin(), by_local_rank_.end(),
                                      [](const auto& entry) { return entry.second == 0; });
}

std::optional<StreamSpec> ParseStreamSpec(std::string_view text) {
  int for_all = 0;
  if (ParseStreams(View(text), for_all)) return StreamSpec(for_all);
  std::map<int, int> by_local_rank;
  for (const absl::string_view part : absl::StrSplit(View(text), ',')) {
    const std::vector<absl::string_view> pair = absl::StrSplit(part, ':');
    int local_rank = 0;
    int streams = 0;
    if (pair.size() != 2 || !absl::SimpleAtoi(pair[0], &local_rank) || local_rank < 0 ||
        !ParseStreams(pair[1], streams) || !by_local_rank.emplace(local_rank, streams).second) {
      return std::nullopt;
    }
  }
  return StreamSpec(std::move(by_local_rank));
}

std::optional<std::set<int>> ParseLocalRanks(std::string_view text) {
  std::set<int> ranks;
  if (text.empty()) return ranks;
  for (const absl::string_view part : absl::StrSplit(View(text), ',')) {
    int rank = 0;
    if (!absl::SimpleAtoi(part, &rank) || rank < 0) return std::nullopt;
    ranks.insert(rank);
  }
  return ranks;
}

std::vector<std::string> ParseFilters(std::string_view text) {
  std::vector<std::string> filters;
  if (text.empty()) return filters;
  filters.emplace_back();
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != ',') {
      filters.back() += text[i];
    } else if (i + 1 < text.size() && text[i + 1] == ',') {
      filters.back() += ',';
      ++i;
    } else {
      filters.emplace_back();
    }
  }
  return filters;
}

std::optional<LogRotation> ParseLogRotation(std::string_view text) {
  const std::vector<absl::string_view> parts = absl::StrSplit(View(text), ':');
  if (parts.size() > 2 || parts[0].empty()) return std::nullopt;
  absl::string_view number = parts[0];
  int shift = 0;
  switch (absl::ascii_toupper(static_cast<unsigned char>(number.back()))) {
    case 'K':
      shift = 10;
      break;
    case 'M':
      shift = 20;
      break;
    case 'G':
      shift = 30;
      break;
    default:
      break;
  }
  if (shift > 0) number.remove_suffix(1);
  LogRotation rotation;
  std::uint64_t count = 0;
  if (!absl::SimpleAtoi(number, &count) || count > (kLogRotateBytesMax >> shift))
    return std::nullopt;
  rotation.bytes = count << shift;
  if (rotation.bytes < kLogRotateBytesMin) return std::nullopt;
  if (parts.size() == 2 && (!absl::SimpleAtoi(parts[1], &rotation.files) || rotation.files < 1 ||
                            rotation.files > kLogRotateFilesMax)) {
    return std::nullopt;
  }
  return rotation;
}

absl::StatusOr<std::string> FillPrefix(std::string_view format, const PrefixValues& values) {
  std::string out;
  while (!format.empty()) {
    const std::size_t dollar = std::min(format.find('$'), format.size());
    out += format.substr(0, dollar);
    format.remove_prefix(dollar);
    if (format.empty()) break;
    format.remove_prefix(1);
    if (!format.empty() && format.front() == '$') {
      out += '$';
      format.remove_prefix(1);
      continue;
    }
    const bool braces = !format.empty() && format.front() == '{';
    const std::string_view rest = format.substr(braces ? 1 : 0);
    const std::string_view name = rest.substr(0, NameLength(rest));
    if (name.empty() || (braces && rest.substr(name.size(), 1) != "}")) {
      return absl::InvalidArgumentError(
          "has a $ that begins no name; a $ that is meant is written $$");
    }
    if (!AppendValue(name, values, out)) {
      return absl::InvalidArgumentError(
          absl::StrCat("has ${", View(name),
                       "}, and ddprun knows ${role_name}, ${local_rank}, ${rank} and ${hostname}"));
    }
    format.remove_prefix(name.size() + (braces ? 2 : 0));
  }
  return out;
}

}  // namespace ddprun
