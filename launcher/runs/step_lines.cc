// SPDX-License-Identifier: Apache-2.0
#include "launcher/runs/step_lines.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace ddprun {
namespace {

std::string Line(JournalRecord record) {
  const std::string text = absl::Base64Escape(EncodeJournalRecord(std::move(record)));
  return absl::StrCat(text.size(), " ", text, "\n");
}

}  // namespace

std::string StepLines::Of(const RunState& before, const MembershipEvent& event, TimePoint now) {
  last_ = now;
  if (pause_end_.has_value() && now < *pause_end_) return "";
  std::string lines(pause_end_.has_value() ? "\n" : "");  // the end of a line that was cut
  pause_end_.reset();
  if (left_ == 0) {
    lines += Line({1, now, RunOpened{before.run_id}});
    lines += Line({1, now, RunSnapshot{0, before}});
    left_ = std::max(kBytesBetweenSnapshots, 2 * lines.size());
  }
  const std::string step = Line({1, now, ForJournal(event)});
  left_ -= std::min(left_, step.size());
  return lines += step;
}

void StepLines::Lost() {
  left_ = 0;
  pause_end_ = last_ + kPauseAfterLoss;
}

std::vector<JournalRecord> ParseSteps(const std::vector<std::string>& lines) {
  std::vector<JournalRecord> records;
  for (const std::string& line : lines) {
    const std::pair<absl::string_view, absl::string_view> parts =
        absl::StrSplit(line, absl::MaxSplits(' ', 1));
    std::size_t size = 0;
    std::string bytes;
    if (!absl::SimpleAtoi(parts.first, &size) || size != parts.second.size() ||
        !absl::Base64Unescape(parts.second, &bytes))
      continue;
    auto record = DecodeJournalRecord(bytes);
    if (!record.ok()) continue;
    if (!records.empty() || std::holds_alternative<RunOpened>(record->what))
      records.push_back(*std::move(record));
  }
  return records;
}

}  // namespace ddprun
