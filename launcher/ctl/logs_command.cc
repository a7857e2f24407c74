// SPDX-License-Identifier: Apache-2.0
#include "launcher/ctl/ctl_command.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <map>
#include <optional>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "launcher/base/command.h"
#include "launcher/base/limits.h"
#include "launcher/ctl/logs_text.h"
#include "launcher/runs/output_record.h"
#include "rendezvous/base/backoff.h"
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

// What one connection shows. `run_id`: of the run, once it is known; empty before.
class LogsView {
 public:
  LogsView(const CtlOptions& options, std::string& run_id)
      : options_(options),
        run_id_(run_id),
        text_(options.watch.follow, kLogsHeldBytesMax, isatty(STDOUT_FILENO) == 1) {}

  // The exit code. UNAVAILABLE, other errors: there is no more, though the run has not ended.
  absl::StatusOr<int> Show(RunWatch& watch) {
    const TimePoint deadline = Now() + options_.timeout;
    while (true) {
      const auto news = watch.Next(text_.waiting() ? deadline : Now() + kFollowTurn);
      if (absl::IsOutOfRange(news.status())) return End();
      if (!news.ok()) {
        Put(text_.StopWaiting());
        return news.status();
      }
      if (!news->has_value()) {
        if (!begun_) return absl::DeadlineExceededError(Unanswered(options_));
        if (!text_.waiting()) continue;
        if (!Put(text_.StopWaiting()) || !options_.watch.follow) return kExitFailure;
        continue;
      }
      if (const auto* first = std::get_if<WatchBegun>(&**news)) Begin(*first);
      if (!Put(text_.On(**news))) return kExitFailure;
      if (const auto* end = std::get_if<RunOver>(&**news)) {
        return Put(absl::StrCat("ddpctl: ", EndSentence(run_id_, *end), "\n")) ? 0 : kExitFailure;
      }
    }
  }

  bool begun() const { return begun_; }

 private:
  void Begin(const WatchBegun& first) {
    begun_ = true;
    if (!run_id_.empty()) Put("ddpctl: connected again; lines from in between are not shown\n");
    run_id_ = first.run_id;
  }

  absl::StatusOr<int> End() {
    if (!Put(text_.StopWaiting())) return kExitFailure;
    if (options_.watch.follow)
      return absl::UnavailableError("the rendezvous service has ended before the run");
    if (!text_.shown_any() && !(options_.watch.ranks.empty() && options_.nodes.empty())) {
      std::fputs(
          "ddpctl: these workers have said nothing yet; ddpctl status shows which ranks the run "
          "has\n",
          stderr);
    }
    return 0;
  }

  const CtlOptions& options_;
  std::string& run_id_;
  LogsText text_;
  bool begun_ = false;
};

}  // namespace

int ShowLogs(const CtlOptions& options, const std::shared_ptr<ServiceChannel>& channel) {
  RunQuestion question{.output = true, .watch = options.watch, .nodes = options.nodes};
  std::string run_id;
  Backoff pause;
  std::optional<TimePoint> give_up;
  while (true) {
    const auto watch = RunWatch::Open(channel, run_id.empty() ? options.run_id : run_id, question);
    LogsView view(options, run_id);
    const absl::StatusOr<int> shown = view.Show(*watch);
    if (shown.ok()) return *shown;
    if (view.begun()) give_up.reset();
    const bool again =
        options.watch.follow && !run_id.empty() &&
        (absl::IsUnavailable(shown.status()) || absl::IsDeadlineExceeded(shown.status()));
    if (!again || (give_up && Now() >= *give_up))
      return CtlFailed(run_id.empty() ? NotReached(shown.status()) : shown.status());
    if (!give_up) {
      give_up = Now() + kLogsLostTimeout;
      pause.Reset();
      if (!Put(absl::StrCat("ddpctl: ", Printable(shown.status().message()), "; asking again for ",
                            kLogsLostTimeout.count(), " s\n")))
        return kExitFailure;
    }
    question.watch.lines = 0;  // those from before were shown
    std::this_thread::sleep_for(pause.Next(kLogsAskAgainMax));
    // Of several services it finds the one that leads now.
    GetStatus(channel, run_id, options.timeout).status().IgnoreError();
  }
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
