// SPDX-License-Identifier: Apache-2.0
#include "launcher/ctl/logs_text.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "rendezvous/base/overloaded.h"
#include "rendezvous/base/printable.h"

namespace ddprun {
namespace {

// The last state of a progress bar, which separates its states by carriage returns.
absl::string_view LastState(absl::string_view text) {
  while (absl::ConsumeSuffix(&text, "\r")) {
  }
  const std::size_t at = text.rfind('\r');
  return at == absl::string_view::npos ? text : text.substr(at + 1);
}

std::string LeftOut(const WorkerLines& said) {
  const std::uint64_t count = said.lines.left_out;
  if (count == 0) return "";
  return absl::StrCat("... ", count, count == 1 ? " line" : " lines", " of node ", said.node,
                      " left out\n");
}

}  // namespace

// The text comes from any member of the run: line ends in it are replaced, and on a terminal also
// escape sequences.
std::string LogsText::Line(const LogLine& line) const {
  const std::string prefix = Printable(line.prefix);
  if (terminal_) return absl::StrCat(prefix, Printable(LastState(line.text)), "\n");
  return absl::StrCat(prefix, absl::StrReplaceAll(line.text, {{"\n", "?"}}), "\n");
}

std::string EndSentence(const std::string& run_id, const RunOver& end) {
  if (!end.verdict) return absl::StrCat("run ", run_id, " is over: its last node has left");
  const Verdict& verdict = *end.verdict;
  if (verdict.success) return absl::StrCat("run ", run_id, " ended: all workers succeeded");
  return absl::StrCat("run ", run_id, " ended with exit code ", verdict.exit_code,
                      verdict.cause ? ": " : "", verdict.cause ? ToSentence(*verdict.cause) : "");
}

std::string LogsText::On(const RunNews& news) {
  std::string text = std::visit(
      Overloaded{[&](const WatchBegun& begun) { return OnBegun(begun); },
                 [&](const WorkerLines& said) { return OnLines(said); },
                 [&](const RunWords& words) { return absl::StrCat("ddpctl: ", words.text, "\n"); },
                 [](const RunEventLine&) { return std::string(); },  // not asked for
                 [&](const TailsEnd&) { return Release(); },
                 [&](const RunOver&) { return Release(); }},
      news);
  if (!waiting_ || !std::holds_alternative<RunWords>(news)) return text;
  later_ += text;
  return "";
}

std::string LogsText::OnBegun(const WatchBegun& begun) {
  unanswered_.insert(begun.nodes.begin(), begun.nodes.end());
  if (begun.away.empty()) return "";
  const bool one = begun.away.size() == 1;
  return absl::StrCat(
      "ddpctl: ", one ? "node " : "nodes ", absl::StrJoin(begun.away, ", "), one ? " has" : " have",
      " no connection to the service now; ",
      follow_ ? "lines come from there once that is back" : "lines from there are not shown", "\n");
}

std::string LogsText::OnLines(const WorkerLines& said) {
  const bool answered = !unanswered_.contains(said.node);
  if (said.lines.tail_end) unanswered_.erase(said.node);
  shown_any_ = shown_any_ || !said.lines.lines.empty();
  std::string text = LeftOut(said);
  if (waiting_ && !answered) {
    std::uint64_t round = said.lines.lines.empty() ? 0 : said.lines.lines.front().round;
    for (const LogLine& line : said.lines.lines) {
      if (line.round != round) {
        held_bytes_ += text.size();
        held_.push_back({round, said.node_rank, std::exchange(text, "")});
        round = line.round;
      }
      text += Line(line);
    }
    held_bytes_ += text.size();
    held_.push_back({round, said.node_rank, std::move(text)});
    return held_bytes_ > bytes_max_ ? Release() : "";
  }
  for (const LogLine& line : said.lines.lines) text += Line(line);
  if (!waiting_) return text;
  later_ += text;
  return "";
}

std::string LogsText::Release() {
  waiting_ = false;
  std::stable_sort(held_.begin(), held_.end(), [](const Held& a, const Held& b) {
    return std::pair(a.round, a.node_rank) < std::pair(b.round, b.node_rank);
  });
  std::string text;
  std::uint64_t round = 0;
  for (const Held& held : held_) {
    if (round != 0 && held.round > round) {
      absl::StrAppend(&text, "ddpctl: of round ", held.round, ":\n");
    }
    if (!held.text.empty()) round = held.round;
    text += held.text;
  }
  held_.clear();
  held_bytes_ = 0;
  return text + std::exchange(later_, "");
}

std::string LogsText::StopWaiting() {
  if (!waiting_) return "";
  std::string text = Release();
  if (!unanswered_.empty()) {
    absl::StrAppend(&text, "ddpctl: nothing came in time from ", absl::StrJoin(unanswered_, ", "),
                    "; ddpctl status shows when each was last heard\n");
  }
  return text;
}

}  // namespace ddprun
