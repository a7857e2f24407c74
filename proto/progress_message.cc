// SPDX-License-Identifier: Apache-2.0
#include "proto/progress_message.h"

#include <cmath>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace ddprun {
namespace {

std::optional<std::int64_t> Count(absl::string_view text) {
  std::int64_t value = 0;
  if (!absl::SimpleAtoi(text, &value) || value < 0) return std::nullopt;
  return value;
}

std::optional<double> Rate(absl::string_view text) {
  double value = 0;
  if (!absl::SimpleAtod(text, &value) || !std::isfinite(value) || value < 0) return std::nullopt;
  return value;
}

std::string Name(absl::string_view text) {
  return std::string(text.substr(0, kProgressNameBytesMax));
}

template <typename T>
void MergeOne(const std::optional<T>& later, std::optional<T>& field) {
  if (later.has_value()) field = later;
}

}  // namespace

std::string ToText(const ProgressMessage& message) {
  std::string text;
  const auto add = [&text](const char* key, const auto& value) {
    if (value.has_value()) absl::StrAppend(&text, key, "=", *value, "\n");
  };
  add("STEP", message.step);
  add("EPOCH", message.epoch);
  add("RATE", message.rate);
  add("UNIT", message.unit);
  add("SECTION", message.section);
  return text;
}

ProgressMessage ParseProgress(std::string_view text) {
  ProgressMessage message;
  const absl::string_view whole(text.data(), text.size());
  for (const absl::string_view line : absl::StrSplit(whole, '\n')) {
    const std::size_t equals = line.find('=');
    if (equals == line.npos) continue;
    const absl::string_view key = line.substr(0, equals);
    const absl::string_view value = line.substr(equals + 1);
    if (key == "STEP") {
      MergeOne(Count(value), message.step);
    } else if (key == "EPOCH") {
      MergeOne(Count(value), message.epoch);
    } else if (key == "RATE") {
      MergeOne(Rate(value), message.rate);
    } else if (key == "UNIT") {
      message.unit = Name(value);
    } else if (key == "SECTION") {
      message.section = Name(value);
    }
  }
  return message;
}

void Merge(const ProgressMessage& later, ProgressMessage& message) {
  MergeOne(later.step, message.step);
  MergeOne(later.epoch, message.epoch);
  MergeOne(later.rate, message.rate);
  MergeOne(later.unit, message.unit);
  MergeOne(later.section, message.section);
}

}  // namespace ddprun
