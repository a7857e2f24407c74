// SPDX-License-Identifier: Apache-2.0
#include "launcher/base/int_ranges.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "launcher/base/limits.h"

namespace ddprun {
namespace {

// More than any machine numbers, and few enough that no list of them is large.
constexpr std::size_t kDigitsMax = 6;

std::optional<int> ParseNumber(absl::string_view text) {
  int number = 0;
  if (text.empty() || text.size() > kDigitsMax ||
      !std::all_of(text.begin(), text.end(), absl::ascii_isdigit) ||
      !absl::SimpleAtoi(text, &number)) {
    return std::nullopt;
  }
  return number;
}

}  // namespace

std::string RangesText(const std::vector<int>& numbers) {
  std::string text;
  for (std::size_t first = 0; first < numbers.size();) {
    std::size_t last = first;
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) ++last;
    absl::StrAppend(&text, text.empty() ? "" : ",", numbers[first]);
    if (last > first) absl::StrAppend(&text, "-", numbers[last]);
    first = last + 1;
  }
  return text;
}

std::optional<std::vector<int>> ParseRange(absl::string_view text) {
  const std::pair<absl::string_view, absl::string_view> ends =
      absl::StrSplit(text, absl::MaxSplits('-', 1));
  const bool is_range = absl::StrContains(text, '-');
  const std::optional<int> first = ParseNumber(ends.first);
  const std::optional<int> last = is_range ? ParseNumber(ends.second) : first;
  if (!first.has_value() || !last.has_value() || *last < *first) return std::nullopt;
  std::vector<int> numbers;
  for (int number = *first; number <= *last; ++number) numbers.push_back(number);
  return numbers;
}

std::optional<std::vector<int>> ParseRanges(absl::string_view text) {
  std::vector<int> numbers;
  text = absl::StripAsciiWhitespace(text);
  if (text.empty()) return numbers;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    const std::optional<std::vector<int>> range = ParseRange(absl::StripAsciiWhitespace(part));
    if (!range.has_value() || numbers.size() + range->size() > kRangeNumbersMax)
      return std::nullopt;
    numbers.insert(numbers.end(), range->begin(), range->end());
  }
  return numbers;
}

}  // namespace ddprun
