// SPDX-License-Identifier: Apache-2.0
#include "launcher/ctl/ctl_command.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <map>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "launcher/base/command.h"
#include "launcher/base/limits.h"
#include "launcher/ctl/logs_text.h"
#include "launcher/runs/output_record.h"
#include "rendezvous/base/printable.h"

namespace ddprun {
namespace {

// With -f the wait has no limit but the end of the run or of the connection.
constexpr std::chrono::hours kFollowTurn{1};

TimePoint Now() { return std::chrono::steady_clock::now(); }

bool Put(const std::string& text) {
  return text.empty() || (std::fwrite(text.data(), 1, text.size(), stdout) == text.size() &&
                          std::fflush(stdout) == 0);
}

absl::Status NotReached(const absl::Status& status) {
  if (!absl::IsUnavailable(status) && !absl::IsDeadlineExceeded(status)) return status;
  return {status.code(),
          absl::StrCat(status.message(),
                       "; a run of one node has a service that can be asked only with --detach or "
                       "--rdzv-endpoint, and its lines in files with --log-dir")};
}

std::string Unanswered(const CtlOptions& options) {
  return absl::StrCat("the rendezvous service at ", TargetOf(options.service),
                      " did not answer within ",
                      std::chrono::duration<double>(options.timeout).count(),
                      " s; the host is down, or a firewall drops the packets");
}

// "[3]" of "[3] loss 0.1"; empty: none.
std::string PrefixOf(const std::string& line) {
  return absl::StartsWith(line, "[") ? line.substr(0, line.find(']') + 1) : "";
}

}  // namespace

int ShowLogs(const CtlOptions& options, const std::shared_ptr<ServiceChannel>& channel) {
  const RunQuestion question{.output = true, .watch = options.watch, .nodes = options.nodes};
  const auto watch = RunWatch::Open(channel, options.run_id, question);
  const TimePoint deadline = Now() + options.timeout;
  LogsText text(options.watch.follow, kLogsHeldBytesMax, isatty(STDOUT_FILENO) == 1);
  std::string run_id;
  while (true) {
    const bool begun = !run_id.empty();
    const auto news = watch->Next(text.waiting() ? deadline : Now() + kFollowTurn);
    if (absl::IsOutOfRange(news.status())) break;
    if (!news.ok()) {
      Put(text.StopWaiting());
      return CtlFailed(begun ? news.status() : NotReached(news.status()));
    }
    if (!news->has_value()) {
      if (!begun) return CtlFailed(NotReached(absl::DeadlineExceededError(Unanswered(options))));
      if (!text.waiting()) continue;
      if (!Put(text.StopWaiting()) || !options.watch.follow) return kExitFailure;
      continue;
    }
    if (const auto* first = std::get_if<WatchBegun>(&**news)) run_id = first->run_id;
    if (!Put(text.On(**news))) return kExitFailure;
    if (const auto* end = std::get_if<RunOver>(&**news)) {
      return Put(absl::StrCat("ddpctl: ", EndSentence(run_id, *end), "\n")) ? 0 : kExitFailure;
    }
  }
  if (!Put(text.StopWaiting())) return kExitFailure;
  if (options.watch.follow)
    return CtlFailed(absl::UnavailableError("the rendezvous service has ended before the run"));
  if (!text.shown_any() && !(options.watch.ranks.empty() && options.nodes.empty())) {
    std::fputs(
        "ddpctl: these workers have said nothing yet; ddpctl status shows which ranks the run "
        "has\n",
        stderr);
  }
  return 0;
}

// Of each worker, which its prefix tells, the last lines; the messages of ddprun have none.
int ShowPastLogs(const CtlOptions& options, const std::string& folder) {
  if (!options.watch.ranks.empty() || !options.nodes.empty()) {
    return CtlFailed(absl::InvalidArgumentError(
        "the run has ended, and its output is kept as its terminal had it: leave --rank and --node "
        "out"));
  }
  std::vector<std::string> lines;
  std::map<std::string, int> left;  // by prefix
  ReadLines(folder, [&](OutputStream stream, std::string line) {
    const bool is_out = stream == OutputStream::kOut;
    if (is_out ? options.watch.without_stdout : options.watch.without_stderr) return;
    ++left[PrefixOf(line)];
    lines.push_back(std::move(line));
  });
  const bool terminal = isatty(STDOUT_FILENO) == 1;
  for (const std::string& line : lines) {
    if (--left[PrefixOf(line)] >= options.watch.lines) continue;
    if (!Put(absl::StrCat(terminal ? Printable(line) : line, "\n"))) return kExitFailure;
  }
  return 0;
}

absl::StatusOr<EndWatch> WatchEnd(const CtlOptions& options,
                                  const std::shared_ptr<ServiceChannel>& channel) {
  RunQuestion question;
  question.watch.follow = true;
  EndWatch end{RunWatch::Open(channel, options.run_id, question), ""};
  const auto news = end.watch->Next(Now() + options.timeout);
  if (!news.ok()) return news.status();
  if (!news->has_value()) return absl::DeadlineExceededError(Unanswered(options));
  if (const auto* begun = std::get_if<WatchBegun>(&**news)) end.run_id = begun->run_id;
  return end;
}

absl::StatusOr<RunOver> WaitForEnd(const CtlOptions& options, EndWatch& end) {
  const TimePoint deadline = Now() + options.wait_timeout;
  while (true) {
    const auto news = end.watch->Next(deadline);
    if (!news.ok()) return news.status();
    if (!news->has_value()) {
      return absl::DeadlineExceededError(absl::StrCat(
          "run ", end.run_id, " has not ended within ",
          std::chrono::duration<double>(options.wait_timeout).count(),
          " s; ddpctl status shows which nodes are still stopping, ddpctl stop --now ends their "
          "grace period, and --wait-timeout SECONDS waits longer"));
    }
    if (auto* over = std::get_if<RunOver>(&**news)) return *over;
  }
}

}  // namespace ddprun
