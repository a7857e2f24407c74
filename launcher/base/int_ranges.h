// SPDX-License-Identifier: Apache-2.0
// Lists of numbers as users and the kernel write them: "0-3,8". Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace ddprun {

// {0, 1, 2, 3, 8} as "0-3,8". `numbers` ascend.
std::string RangesText(const std::vector<int>& numbers);

// "3" or "0-3", the numbers in order. Absent: invalid, a number of more than 6 digits, or a
// descending range.
std::optional<std::vector<int>> ParseRange(absl::string_view text);

// Ranges with commas between them, in the order of writing; "" is no number. A final newline is
// none either, as files of /sys have one. Absent too: more than kRangeNumbersMax numbers.
std::optional<std::vector<int>> ParseRanges(absl::string_view text);

}  // namespace ddprun
