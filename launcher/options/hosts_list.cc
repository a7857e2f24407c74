// SPDX-License-Identifier: Apache-2.0
#include "launcher/options/hosts_list.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "launcher/base/limits.h"
#include "rendezvous/base/limits.h"

namespace ddprun {
namespace {

constexpr std::size_t kRangeDigitsMax = 9;

// Bytes of a quoted text that a sentence shows at its beginning and its end.
constexpr std::size_t kShownBytes = 100;

absl::Status Invalid(const std::string& source, absl::string_view sentence) {
  if (sentence.size() <= 3 * kShownBytes)
    return absl::InvalidArgumentError(absl::StrCat(source, " ", sentence));
  return absl::InvalidArgumentError(
      absl::StrCat(source, " ", sentence.substr(0, kShownBytes), "[...]",
                   sentence.substr(sentence.size() - 2 * kShownBytes)));
}

absl::Status TooMany(const std::string& source) {
  return Invalid(source, absl::StrCat("names more than ", kNodesMax, " hosts; name fewer"));
}

// Parts at commas that are in no brackets.
std::vector<std::string> SplitAtCommas(absl::string_view text) {
  std::vector<std::string> parts(1);
  int depth = 0;
  for (const char c : text) {
    if (c == '[') ++depth;
    if (c == ']') --depth;
    if (c == ',' && depth <= 0) {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

bool AllDigits(absl::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), absl::ascii_isdigit);
}

// The numbers of one pair of brackets, with their leading zeros: "01-03,7". Never more than
// kNodesMax.
absl::StatusOr<std::vector<std::string>> ExpandNumbers(absl::string_view text,
                                                       const std::string& source) {
  std::vector<std::string> numbers;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    const std::pair<absl::string_view, absl::string_view> ends =
        absl::StrSplit(part, absl::MaxSplits('-', 1));
    const absl::string_view last = absl::StrContains(part, '-') ? ends.second : ends.first;
    int from = 0;
    int to = 0;
    if (!AllDigits(ends.first) || !AllDigits(last) || ends.first.size() > kRangeDigitsMax ||
        last.size() > kRangeDigitsMax || !absl::SimpleAtoi(ends.first, &from) ||
        !absl::SimpleAtoi(last, &to) || to < from) {
      return Invalid(source,
                     absl::StrCat("has '[", text, "]', which is no range; write it as [01-04,7]"));
    }
    if (to - from >= kNodesMax - static_cast<int>(numbers.size())) return TooMany(source);
    for (int number = from; number <= to; ++number) {
      numbers.push_back(absl::StrFormat("%0*d", static_cast<int>(ends.first.size()), number));
    }
  }
  return numbers;
}

// One name with any number of brackets; the last brackets count fastest.
absl::StatusOr<std::vector<std::string>> ExpandName(absl::string_view text,
                                                    const std::string& source) {
  std::vector<std::string> names = {""};
  for (int ranges = 0; !text.empty(); ++ranges) {
    const std::size_t open = text.find('[');
    const absl::string_view plain = text.substr(0, open);
    if (names.front().size() + plain.size() > kNameBytesMax) {
      return Invalid(source, absl::StrCat("has a name of more than ", kNameBytesMax,
                                          " characters; write one host a line"));
    }
    for (std::string& name : names) absl::StrAppend(&name, plain);
    if (open == absl::string_view::npos) break;
    if (ranges == kHostNameRangesMax) {
      return Invalid(source, absl::StrCat("has a name with more than ", kHostNameRangesMax,
                                          " ranges; write its hosts one by one"));
    }
    const std::size_t close = text.find(']', open);
    if (close == absl::string_view::npos) {
      return Invalid(source, absl::StrCat("has '", text, "', where a ] is missing"));
    }
    absl::StatusOr<std::vector<std::string>> numbers =
        ExpandNumbers(text.substr(open + 1, close - open - 1), source);
    if (!numbers.ok()) return numbers.status();
    if (names.size() * numbers->size() > static_cast<std::size_t>(kNodesMax))
      return TooMany(source);
    std::vector<std::string> longer;
    for (const std::string& name : names) {
      for (const std::string& number : *numbers) longer.push_back(name + number);
    }
    names = std::move(longer);
    text.remove_prefix(close + 1);
  }
  return names;
}

absl::Status CheckName(const std::string& name, const std::string& source) {
  if (name.size() > kNameBytesMax) {
    return Invalid(source, absl::StrCat("has a name of more than ", kNameBytesMax,
                                        " characters; write one host a line"));
  }
  const auto odd = [](char c) {
    return !absl::ascii_isalnum(c) && !absl::StrContains(".-_:@%", c);
  };
  if (absl::StrContains(name, '/')) {
    return Invalid(source, absl::StrCat("has '", name,
                                        "', which is a path and no host; a file of hosts is given "
                                        "with --hostfile"));
  }
  // A leading '-' would be an option of ssh.
  if (WithoutUser(name).empty() || name.front() == '-' || WithoutUser(name).front() == '-' ||
      std::any_of(name.begin(), name.end(), odd)) {
    return Invalid(source, absl::StrCat("has '", name, "', which is no name of a host"));
  }
  return absl::OkStatus();
}

absl::StatusOr<int> ParseSlots(absl::string_view text, const std::string& host,
                               const std::string& source) {
  int slots = 0;
  if (!absl::SimpleAtoi(text, &slots) || slots < 1 || slots > kLocalWorldSizeMax) {
    return Invalid(source, absl::StrCat("gives ", host, " '", text,
                                        "' slots, which is not from 1 to ", kLocalWorldSizeMax));
  }
  return slots;
}

// Parts "host:2"; an IPv6 address with slots stands in brackets: "[::1]:2". Brackets that hold a
// colon are an address, others a range.
absl::StatusOr<HostEntry> ParseMention(absl::string_view text, const std::string& source) {
  HostEntry entry{std::string(text), std::nullopt};
  absl::string_view slots;
  const std::size_t close = text.find(']');
  if (absl::StartsWith(text, "[") && close != absl::string_view::npos &&
      absl::StrContains(text.substr(0, close), ':')) {
    entry.name = std::string(text.substr(1, close - 1));
    slots = text.substr(close + 1);
    if (slots.empty()) return entry;
    if (slots.front() != ':')
      return Invalid(source, absl::StrCat("has '", text, "'; write it as [::1]:2"));
    slots.remove_prefix(1);
  } else if (std::count(text.begin(), text.end(), ':') == 1) {
    const std::size_t colon = text.find(':');
    entry.name = std::string(text.substr(0, colon));
    slots = text.substr(colon + 1);
  } else {
    return entry;
  }
  absl::StatusOr<int> number = ParseSlots(slots, entry.name, source);
  if (!number.ok()) return number.status();
  entry.slots = *number;
  return entry;
}

// The hosts so far, in the order of their first mention.
class HostTable {
 public:
  // The entry of that name, made where there is none; nullptr where there are kNodesMax of them.
  HostEntry* Find(const std::string& name, bool& is_new) {
    const auto [place, inserted] = places_.try_emplace(name, hosts_.size());
    is_new = inserted;
    if (!inserted) return &hosts_[place->second];
    if (hosts_.size() == static_cast<std::size_t>(kNodesMax)) return nullptr;
    return &hosts_.emplace_back(HostEntry{name, std::nullopt});
  }

  // One sentence where the text is more than a list of kNodesMax hosts can need.
  absl::Status Count(std::size_t mentions, const std::string& source) {
    mentions_ += mentions;
    return mentions_ <= kHostMentionsMax ? absl::OkStatus() : TooMany(source);
  }

  bool empty() const { return hosts_.empty(); }
  std::vector<HostEntry> Take() { return std::move(hosts_); }

 private:
  std::vector<HostEntry> hosts_;
  absl::flat_hash_map<std::string, std::size_t> places_;
  std::size_t mentions_ = 0;
};

absl::Status Add(const HostEntry& mention, const std::string& source, HostTable& hosts) {
  absl::StatusOr<std::vector<std::string>> names = absl::StrContains(mention.name, '[')
                                                       ? ExpandName(mention.name, source)
                                                       : std::vector<std::string>{mention.name};
  if (!names.ok()) return names.status();
  if (absl::Status status = hosts.Count(names->size(), source); !status.ok()) return status;
  for (const std::string& name : *names) {
    if (absl::Status status = CheckName(name, source); !status.ok()) return status;
    bool is_new = false;
    HostEntry* const known = hosts.Find(name, is_new);
    if (known == nullptr) return TooMany(source);
    if (is_new) {
      known->slots = mention.slots;
    } else {
      known->slots = known->slots.value_or(1) + mention.slots.value_or(1);
      if (*known->slots > kLocalWorldSizeMax) {
        return Invalid(source, absl::StrCat("gives ", name, " more than ", kLocalWorldSizeMax,
                                            " slots in all"));
      }
    }
  }
  return absl::OkStatus();
}

absl::Status AddLine(absl::string_view line, const std::string& source, HostTable& hosts) {
  const std::vector<absl::string_view> words =
      absl::StrSplit(line, absl::ByAnyChar(" \t\r"), absl::SkipEmpty());
  if (words.empty()) return absl::OkStatus();
  absl::StatusOr<HostEntry> entry = ParseMention(words.front(), source);
  if (!entry.ok()) return entry.status();
  for (std::size_t i = 1; i < words.size(); ++i) {
    const std::pair<absl::string_view, absl::string_view> pair =
        absl::StrSplit(words[i], absl::MaxSplits('=', 1));
    if (pair.first == "slots") {
      absl::StatusOr<int> slots = ParseSlots(pair.second, entry->name, source);
      if (!slots.ok()) return slots.status();
      entry->slots = *slots;
    } else if (pair.first != "max_slots" && pair.first != "max-slots") {
      return Invalid(source, absl::StrCat("has '", words[i], "' after ", entry->name,
                                          "; a line is: HOST slots=N"));
    }
  }
  return Add(*entry, source, hosts);
}

}  // namespace

absl::StatusOr<std::vector<HostEntry>> ParseHosts(absl::string_view text,
                                                  const std::string& source) {
  HostTable hosts;
  for (const std::string& part : SplitAtCommas(text)) {
    const absl::string_view word = absl::StripAsciiWhitespace(part);
    if (word.empty()) return Invalid(source, absl::StrCat("'", text, "' has an empty name in it"));
    absl::StatusOr<HostEntry> mention = ParseMention(word, source);
    if (!mention.ok()) return mention.status();
    if (absl::Status status = Add(*mention, source, hosts); !status.ok()) return status;
  }
  return hosts.Take();
}

absl::StatusOr<std::vector<HostEntry>> ParseHostfile(absl::string_view text,
                                                     const std::string& source) {
  HostTable hosts;
  int number = 0;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    line = line.substr(0, line.find('#'));
    const absl::Status status = AddLine(line, absl::StrCat(source, " line ", ++number), hosts);
    if (!status.ok()) return status;
  }
  if (hosts.empty()) return Invalid(source, "names no host; a line is: HOST slots=N");
  return hosts.Take();
}

absl::StatusOr<std::vector<std::string>> ExpandHostlist(absl::string_view text,
                                                        const std::string& source) {
  std::vector<std::string> all;
  for (const std::string& part : SplitAtCommas(text)) {
    if (part.empty()) continue;
    absl::StatusOr<std::vector<std::string>> names = ExpandName(part, source);
    if (!names.ok()) return names.status();
    if (all.size() + names->size() > static_cast<std::size_t>(kNodesMax)) return TooMany(source);
    all.insert(all.end(), names->begin(), names->end());
  }
  return all;
}

std::string WithoutUser(const std::string& name) {
  const std::size_t at = name.rfind('@');
  return at == std::string::npos ? name : name.substr(at + 1);
}

}  // namespace ddprun
