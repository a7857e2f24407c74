// SPDX-License-Identifier: Apache-2.0
#include "launcher/verdict.h"

#include <csignal>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace ddprun {
namespace {

void AppendIndented(const std::string& text, std::string& out) {
  for (absl::string_view line : absl::StrSplit(absl::StripSuffix(text, "\n"), '\n')) {
    absl::StrAppend(&out, "    ", line, "\n");
  }
}

std::string DetailText(const Failure& failure) {
  std::string out;
  if (!failure.message.empty() && failure.rank >= 0 && failure.kind != FailureKind::kSpawnFailed) {
    absl::StrAppend(&out, "  what it said:\n");
    AppendIndented(failure.message, out);
  }
  if (!failure.last_lines.empty()) {
    absl::StrAppend(&out, "  last lines of rank ", failure.rank, ":\n");
    for (const std::string& line : failure.last_lines) absl::StrAppend(&out, "    ", line, "\n");
  }
  if (failure.kind == FailureKind::kWorkerSignaled && failure.signal == SIGKILL) {
    absl::StrAppend(&out,
                    "  ddprun did not send this SIGKILL: if no person did, look for the kernel's "
                    "out-of-memory killer with `dmesg` on ",
                    failure.host, "\n");
  }
  return out;
}

}  // namespace

std::string VerdictText(const Verdict& verdict) {
  if (verdict.success) return "";
  if (verdict.cause.has_value() && verdict.cause->kind == FailureKind::kNodeDrained) {
    return absl::StrCat("ddprun: this node has left the run: ", ToSentence(*verdict.cause),
                        "\n  exit code: ", verdict.exit_code, "\n");
  }
  const bool stopped = verdict.cause.has_value() && verdict.cause->kind == FailureKind::kRunStopped;
  std::string out = stopped ? "ddprun: run ended" : "ddprun: run failed";
  if (verdict.cause.has_value()) absl::StrAppend(&out, ": ", ToSentence(*verdict.cause));
  if (verdict.round != kNoRound) absl::StrAppend(&out, ", round ", ToNumber(verdict.round));
  absl::StrAppend(&out, "\n");
  if (verdict.round != kNoRound) {
    absl::StrAppend(&out, "  restarts: ", verdict.restart_count, " of ", verdict.restarts_max,
                    " used\n");
  }
  if (verdict.cause.has_value()) absl::StrAppend(&out, DetailText(*verdict.cause));
  absl::StrAppend(&out, "  exit code: ", verdict.exit_code, "\n");
  return out;
}

std::string LocalFailureText(const Failure& failure, const std::string& why_local_only) {
  return absl::StrCat("ddprun: run failed: ", ToSentence(failure), "\n", DetailText(failure), "  ",
                      why_local_only, "\n  exit code: ", ToExitCode(failure), "\n");
}

}  // namespace ddprun
