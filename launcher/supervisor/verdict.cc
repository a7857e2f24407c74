// SPDX-License-Identifier: Apache-2.0
#include "launcher/supervisor/verdict.h"

#include <algorithm>
#include <csignal>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "launcher/base/limits.h"
#include "launcher/supervisor/stack_summary.h"
#include "rendezvous/membership/restart_policy.h"
#include "rendezvous/values/collectives.h"
#include "rendezvous/values/worker_outcomes.h"

namespace ddprun {
namespace {

using Lines = std::vector<std::string>;

Lines LinesOf(const std::string& text) {
  return absl::StrSplit(absl::StripSuffix(text, "\n"), '\n');
}

// Keeps the output on one screen: the first lines and the last ones matter most.
void AppendIndented(const Lines& lines, std::string& out) {
  constexpr std::size_t kHead = 4;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (i == kHead && lines.size() > kShownLinesMax) {
      const std::size_t skipped = lines.size() - kShownLinesMax;
      absl::StrAppend(&out, "    ... ", skipped, " lines, see --verdict-file\n");
      i += skipped;
    }
    absl::StrAppend(&out, "    ", lines[i], "\n");
  }
}

// True if the worker's output contains the traceback too, as Python prints it.
bool IsAmong(const std::string& traceback, const Lines& last_lines) {
  const Lines lines = LinesOf(traceback);
  return std::all_of(lines.begin(), lines.end(), [&last_lines](const std::string& line) {
    return std::any_of(last_lines.begin(), last_lines.end(),
                       [&line](const std::string& shown) { return absl::EndsWith(shown, line); });
  });
}

// The last lines without the message, which programs both print and record.
Lines WithoutMessage(const Lines& last_lines, const std::string& message) {
  const Lines said = LinesOf(message);
  Lines rest;
  for (const std::string& line : last_lines) {
    const bool is_said = std::any_of(said.begin(), said.end(), [&line](const std::string& words) {
      return !words.empty() && absl::EndsWith(line, words);
    });
    if (!is_said) rest.push_back(line);
  }
  return rest;
}

std::string WordsText(const Failure& failure, FailureMessage message) {
  std::string out;
  const bool has_words =
      !failure.message.empty() && failure.rank >= 0 && failure.kind != FailureKind::kSpawnFailed;
  if (!failure.traceback.empty() && !IsAmong(failure.traceback, failure.last_lines)) {
    out = "  what it said:\n";
    AppendIndented(LinesOf(failure.traceback), out);
  } else if (has_words && message == FailureMessage::kInclude) {
    out = "  what it said:\n";
    AppendIndented(LinesOf(failure.message), out);
  }
  // A traceback is not shortened.
  const Lines last_lines = has_words && failure.traceback.empty()
                               ? WithoutMessage(failure.last_lines, failure.message)
                               : failure.last_lines;
  if (!last_lines.empty()) {
    absl::StrAppend(&out, "  last lines of rank ", failure.rank, ":\n");
    for (const std::string& line : last_lines) absl::StrAppend(&out, "    ", line, "\n");
  }
  return out;
}

std::string StackText(const Failure& failure) {
  if (!failure.hang || failure.hang->stack.empty()) return "";
  const StackSummary summary = SummaryOf(failure.hang->stack, kStackLinesShown);
  std::string out = absl::StrCat("  where rank ", failure.rank, " was:\n");
  for (const std::string& line : summary.lines) absl::StrAppend(&out, "  ", line, "\n");
  if (summary.left_out > 0)
    absl::StrAppend(&out, "    ... ", summary.left_out, " lines, see --verdict-file\n");
  return out;
}

std::string DetailText(const Failure& failure, FailureMessage message) {
  std::string out = CollectivesText(failure.places);
  absl::StrAppend(&out, StackText(failure), WordsText(failure, message));
  if (!failure.core_file.empty()) {
    absl::StrAppend(&out, "  core on ", failure.host, ": ", failure.core_file, "\n");
  }
  if (!failure.advice.empty()) absl::StrAppend(&out, "  ", failure.advice, "\n");
  return out;
}

std::string AftermathText(const std::vector<WorkerOutcomes>& outcomes) {
  std::string out;
  for (const WorkerOutcomes& way : outcomes) {
    absl::StrAppend(&out, out.empty() ? "  the others:\n" : "", "    ", RanksOf(way), " ",
                    WayOf(way), "\n");
  }
  return out;
}

}  // namespace

std::string CollectivesText(const std::vector<RanksInPlace>& places) {
  const std::string where = ToSentence(places);
  return where.empty() ? "" : absl::StrCat("  collectives: ", where, "\n");
}

std::string VerdictText(const Verdict& verdict, FailureMessage message) {
  if (verdict.success) return "";
  if (verdict.cause.has_value() && verdict.cause->kind == FailureKind::kNodeDrained) {
    return absl::StrCat("ddprun: this node has left the run: ", ToSentence(*verdict.cause),
                        "\n  exit code: ", verdict.exit_code, "\n");
  }
  const bool stopped = verdict.cause.has_value() && IsStopped(*verdict.cause);
  std::string out = stopped ? "ddprun: run ended" : "ddprun: run failed";
  if (verdict.cause.has_value()) absl::StrAppend(&out, ": ", ToSentence(*verdict.cause));
  if (verdict.round != kNoRound) absl::StrAppend(&out, ", round ", ToNumber(verdict.round));
  absl::StrAppend(&out, "\n");
  if (verdict.round != kNoRound) {
    absl::StrAppend(&out, "  restarts: ", verdict.restart_count - verdict.restarts_forgiven, " of ",
                    verdict.restarts_max, " used");
    if (verdict.restarts_forgiven > 0) {
      absl::StrAppend(&out, ", ", verdict.restart_count, " in all");
    }
    absl::StrAppend(&out, "\n");
  }
  if (!verdict.not_restarted.empty()) {
    absl::StrAppend(&out, "  not restarted: ", verdict.not_restarted, "\n");
  }
  if (verdict.cause.has_value()) absl::StrAppend(&out, DetailText(*verdict.cause, message));
  absl::StrAppend(&out, AftermathText(verdict.outcomes));
  if (const std::string goodput = GoodputText(verdict.time); !goodput.empty())
    absl::StrAppend(&out, "  goodput: ", goodput, "\n");
  absl::StrAppend(&out, "  exit code: ", verdict.exit_code, "\n");
  return out;
}

std::string LocalFailureText(const Failure& failure, const std::string& why_local_only) {
  return absl::StrCat("ddprun: run failed: ", ToSentence(failure), "\n",
                      DetailText(failure, FailureMessage::kInclude), "  ", why_local_only,
                      "\n  exit code: ", ToExitCode(failure), "\n");
}

FailureRecord RecordOf(const Failure& failure) {
  FailureRecord record{.message = failure.message, .traceback = failure.traceback};
  if (record.message.empty()) record.message = ToSentence(failure);
  record.error_code = failure.signal != 0 ? -failure.signal : ToExitCode(failure);
  return record;
}

}  // namespace ddprun
