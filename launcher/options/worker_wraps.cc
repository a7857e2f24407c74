// SPDX-License-Identifier: Apache-2.0
#include "launcher/options/worker_wraps.h"

#include <algorithm>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "launcher/base/int_ranges.h"

namespace ddprun {
namespace {

constexpr char kForm[] =
    "is not RANKS:COMMAND, as in 0:\"gdb --args\", 0-3,8:\"perf record -o perf.%r\" or all:time";

// Within double quotes a backslash is a character like any other, except before these.
constexpr absl::string_view kEscapedInQuotes = "\"\\$`";

class WordSplitter {
 public:
  explicit WordSplitter(absl::string_view text) : text_(text) {}

  std::optional<std::vector<std::string>> Split() {
    while (at_ < text_.size()) {
      const char c = text_[at_++];
      if (c == '\'') {
        if (!TakeSingleQuoted()) return std::nullopt;
      } else if (c == '"') {
        if (!TakeDoubleQuoted()) return std::nullopt;
      } else if (c == '\\') {
        if (at_ == text_.size()) return std::nullopt;
        Add(text_[at_++]);
      } else if (absl::ascii_isspace(static_cast<unsigned char>(c))) {
        EndWord();
      } else {
        Add(c);
      }
    }
    EndWord();
    return std::move(words_);
  }

 private:
  void Add(char c) {
    in_word_ = true;
    word_ += c;
  }

  void EndWord() {
    if (in_word_) words_.push_back(std::move(word_));
    word_.clear();
    in_word_ = false;
  }

  bool TakeSingleQuoted() {
    const std::size_t end = text_.find('\'', at_);
    if (end == absl::string_view::npos) return false;
    in_word_ = true;  // '' is a word
    absl::StrAppend(&word_, text_.substr(at_, end - at_));
    at_ = end + 1;
    return true;
  }

  bool TakeDoubleQuoted() {
    in_word_ = true;
    while (at_ < text_.size() && text_[at_] != '"') {
      const bool escapes = text_[at_] == '\\' && at_ + 1 < text_.size() &&
                           kEscapedInQuotes.find(text_[at_ + 1]) != absl::string_view::npos;
      if (escapes) ++at_;
      word_ += text_[at_++];
    }
    return at_++ < text_.size();
  }

  const absl::string_view text_;
  std::size_t at_ = 0;
  std::vector<std::string> words_;
  std::string word_;
  bool in_word_ = false;
};

}  // namespace

std::optional<std::vector<std::string>> SplitWords(absl::string_view text) {
  return WordSplitter(text).Split();
}

absl::StatusOr<WorkerWrap> ParseWrap(absl::string_view text) {
  const std::size_t colon = text.find(':');
  if (colon == absl::string_view::npos) return absl::InvalidArgumentError(kForm);
  WorkerWrap wrap;
  if (const absl::string_view ranks = text.substr(0, colon); ranks != "all") {
    std::optional<std::vector<int>> numbers = ParseRanges(ranks);
    if (!numbers.has_value() || numbers->empty()) return absl::InvalidArgumentError(kForm);
    const std::set<int> sorted(numbers->begin(), numbers->end());
    wrap.ranks.assign(sorted.begin(), sorted.end());
  }
  std::optional<std::vector<std::string>> command = SplitWords(text.substr(colon + 1));
  if (!command.has_value())
    return absl::InvalidArgumentError("has a quote without an end; close it");
  if (command->empty()) return absl::InvalidArgumentError(kForm);
  wrap.command = *std::move(command);
  return wrap;
}

const WorkerWrap* FindWrap(const std::vector<WorkerWrap>& wraps, int rank) {
  const auto found = std::find_if(wraps.begin(), wraps.end(), [&](const WorkerWrap& wrap) {
    return wrap.ranks.empty() || std::binary_search(wrap.ranks.begin(), wrap.ranks.end(), rank);
  });
  return found == wraps.end() ? nullptr : &*found;
}

int FindRankInTwo(const std::vector<WorkerWrap>& wraps) {
  std::set<int> seen;
  const bool all = std::any_of(wraps.begin(), wraps.end(),
                               [](const WorkerWrap& wrap) { return wrap.ranks.empty(); });
  if (all && wraps.size() > 1) {
    const WorkerWrap& other = wraps[0].ranks.empty() ? wraps[1] : wraps[0];
    return other.ranks.empty() ? 0 : other.ranks.front();
  }
  for (const WorkerWrap& wrap : wraps) {
    for (const int rank : wrap.ranks) {
      if (!seen.insert(rank).second) return rank;
    }
  }
  return -1;
}

int HighestWrapped(const std::vector<WorkerWrap>& wraps) {
  int highest = -1;
  for (const WorkerWrap& wrap : wraps) {
    if (!wrap.ranks.empty()) highest = std::max(highest, wrap.ranks.back());
  }
  return highest;
}

std::vector<std::string> WrapCommand(const WorkerWrap& wrap, int rank, int local_rank) {
  std::vector<std::string> command = wrap.command;
  for (std::string& word : command) {
    word = absl::StrReplaceAll(word, {{"%r", absl::StrCat(rank)},
                                      {"${rank}", absl::StrCat(rank)},
                                      {"${local_rank}", absl::StrCat(local_rank)}});
  }
  return command;
}

}  // namespace ddprun
