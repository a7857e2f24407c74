// SPDX-License-Identifier: Apache-2.0
#include <pthread.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <ctime>
#include <iostream>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "launcher/base/limits.h"
#include "launcher/chaos/chaos_plan.h"
#include "launcher/chaos/chaos_report.h"
#include "launcher/ctl/ctl_command.h"
#include "launcher/node/network.h"
#include "proto/output_file.h"
#include "rendezvous/client/control_client.h"

namespace ddprun {
namespace {

using Clock = std::chrono::steady_clock;

void Put(const std::string& text) {
  std::fputs(text.c_str(), stdout);
  std::fflush(stdout);
}

double SecondsBetween(TimePoint from, TimePoint to) {
  return std::chrono::duration<double>(to - from).count();
}

// Waits for at most `time`; true: Ctrl-C or SIGTERM came.
class Interruption {
 public:
  Interruption() {
    sigemptyset(&signals_);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&signals_, signal);
    pthread_sigmask(SIG_BLOCK, &signals_, nullptr);
  }
  bool Wait(std::chrono::milliseconds time) const {
    const timespec left{.tv_sec = time.count() / 1000,
                        .tv_nsec = static_cast<long>(time.count() % 1000) * 1'000'000};
    return sigtimedwait(&signals_, nullptr, &left) > 0;
  }

 private:
  sigset_t signals_{};
};

// One series of faults, from its first to its report.
class Chaos {
 public:
  Chaos(const CtlOptions& options, std::shared_ptr<ServiceChannel> channel, RunStatus status,
        std::uint64_t seed)
      : options_(options),
        channel_(std::move(channel)),
        plan_(seed, options.chaos.kinds, options.chaos.duration),
        begin_(Clock::now()),
        next_(begin_),
        last_answer_(begin_),
        status_(std::move(status)) {
    result_.run_id = status_.run_id;
    result_.seed = seed;
    result_.before = result_.after = status_.time;
  }

  ChaosResult Run() {
    Interruption interruption;
    while (result_.end.empty()) {
      Refresh();
      CloseFaults();
      InjectIfDue();
      EndIfOver();
      if (!result_.end.empty()) break;
      if (interruption.Wait(open_.empty() ? kChaosIdleInterval : kChaosPollInterval)) {
        result_.end = "it was interrupted";
      }
    }
    Undo();
    for (const Open& open : open_) Show(result_.faults[open.index]);
    result_.seconds = SecondsBetween(begin_, Clock::now());
    return std::move(result_);
  }

 private:
  // A fault after which no new step was seen so far.
  struct Open {
    std::size_t index = 0;
    TimePoint at{};
    ChaosStep before;
    RoundId round = kNoRound;
    bool ends_round = false;  // steps of that round do not count
  };

  void Refresh() {
    const auto status = GetStatus(channel_, result_.run_id, options_.timeout);
    fresh_ = status.ok() && status->runs.size() == 1;
    if (fresh_) {
      status_ = status->runs.front();
      last_answer_ = Clock::now();
      if (status_.time.Sum() > result_.after.Sum()) result_.after = status_.time;
      if (const auto step = FurthestStep(status_)) step_ = *step;
      if (status_.phase == RunPhase::kClosed) result_.end = "the run has ended";
    } else if (status.ok() || status.status().code() == absl::StatusCode::kNotFound) {
      result_.end = "the run has ended";
    } else if (Clock::now() - last_answer_ > kChaosServiceTimeout) {
      result_.end = std::string(status.status().message());
    }
  }

  void CloseFaults() {
    if (!fresh_) return;
    const TimePoint now = Clock::now();
    std::erase_if(open_, [&](Open& open) {
      const bool same_round = status_.round == open.round;
      if (same_round && now < open.at + kChaosStepAge) open.before = std::max(open.before, step_);
      if (same_round && open.ends_round) return false;
      if (!HasMadeNewStep(open.before, step_)) return false;
      InjectedFault& fault = result_.faults[open.index];
      fault.lost = SecondsBetween(open.at, now);
      Show(fault);
      return true;
    });
  }

  void InjectIfDue() {
    const TimePoint now = Clock::now();
    if (!fresh_ || !result_.end.empty() || now < next_ || HasAll()) return;
    const std::optional<PlannedFault> planned = plan_.Next(status_, now);
    if (!planned.has_value()) return;
    next_ = now + options_.chaos.every;
    InjectedFault fault{.planned = *planned, .at = SecondsBetween(begin_, now)};
    const bool of_worker = planned->rank >= 0;
    const absl::StatusOr<FaultReport> report =
        InjectFault(channel_, result_.run_id,
                    {.by = HostName(),
                     .kind = planned->kind,
                     .rank = planned->rank,
                     .node = of_worker ? "" : planned->node_id,
                     .duration = planned->duration},
                    options_.timeout);
    // A service that has killed itself may not have sent its answer.
    fault.done = report.ok() || (planned->kind == FaultKind::kService &&
                                 report.status().code() == absl::StatusCode::kUnavailable);
    fault.words = report.ok() ? report->words : std::string(report.status().message());
    result_.faults.push_back(fault);
    if (!fault.done) return Show(fault);
    ChaosStep before = step_;
    if (report.ok() && report->step >= 0) {
      before = std::max(before, ChaosStep{report->epoch, report->step});
    }
    // A program that reports no steps: nothing can be waited for.
    if (before.step < 0) return Show(fault);
    open_.push_back({.index = result_.faults.size() - 1,
                     .at = now,
                     .before = before,
                     .round = status_.round,
                     .ends_round = InfoOf(planned->kind).ends_round});
  }

  bool HasAll() const {
    const ChaosOptions& chaos = options_.chaos;
    if (chaos.count > 0 && result_.faults.size() >= static_cast<std::size_t>(chaos.count)) {
      return true;
    }
    return chaos.time.count() > 0 && Clock::now() - begin_ >= chaos.time;
  }

  void EndIfOver() {
    if (!result_.end.empty() || !HasAll()) return;
    if (open_.empty()) {
      result_.end = "all of them were injected";
    } else if (Clock::now() - open_.back().at > kChaosLastStepTimeout) {
      result_.end = "the run has not made a new step since the last one";
    }
  }

  // Faults that last end by themselves where a node cannot be asked.
  void Undo() {
    if (status_.phase == RunPhase::kClosed || !fresh_) return;
    for (const NodeStatus& node : status_.nodes) {
      const auto undone =
          InjectFault(channel_, result_.run_id,
                      {.by = HostName(), .kind = FaultKind::kUndo, .node = node.node_id.value},
                      options_.timeout);
      (void)undone;
    }
  }

  static void Show(const InjectedFault& fault) { Put(absl::StrCat(FaultLine(fault), "\n")); }

  const CtlOptions& options_;
  const std::shared_ptr<ServiceChannel> channel_;
  ChaosPlan plan_;
  const TimePoint begin_;
  TimePoint next_;         // the next fault is due
  TimePoint last_answer_;  // of the service
  RunStatus status_;
  bool fresh_ = false;  // the status was read in this turn
  ChaosStep step_;      // the furthest that was seen last
  std::vector<Open> open_;
  ChaosResult result_;
};

absl::Status CheckSecret(const CtlOptions& options) {
  if (!options.security.insecure && options.service.socket.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "chaos needs a run with a secret; start it without --insecure and name its service by "
      "--rdzv-endpoint HOST:PORT");
}

absl::Status AskForYes(const CtlOptions& options, const RunStatus& run) {
  if (options.chaos.yes) return absl::OkStatus();
  if (isatty(STDIN_FILENO) == 0) {
    return absl::FailedPreconditionError(absl::StrCat("chaos injects faults into run '", run.run_id,
                                                      "'; give --yes if that is wanted"));
  }
  Put(absl::StrCat("Faults are injected into run '", run.run_id, "' (", run.world_size,
                   " workers). Type the run's id to go on: "));
  std::string line;
  if (std::getline(std::cin, line) && line == run.run_id) return absl::OkStatus();
  return absl::CancelledError("this is not the run's id; no fault was injected");
}

}  // namespace

int RunChaos(const CtlOptions& options, const std::shared_ptr<ServiceChannel>& channel) {
  if (const absl::Status status = CheckSecret(options); !status.ok()) return CtlFailed(status);
  absl::StatusOr<RunStatus> run = TheRun(options, channel);
  if (!run.ok()) return CtlFailed(run.status());
  if (const absl::Status status = AskForYes(options, *run); !status.ok()) return CtlFailed(status);
  const std::uint64_t seed = options.chaos.seed ? static_cast<std::uint64_t>(*options.chaos.seed)
                                                : std::random_device{}() & 0x7fffffffu;
  Chaos chaos(options, channel, *std::move(run), seed);
  const ChaosResult result = chaos.Run();
  Put(ChaosText(result));
  if (options.chaos.report.empty()) return 0;
  const absl::Status written = WriteWholeFile(options.chaos.report, ChaosJson(result));
  return written.ok() ? 0 : CtlFailed(written);
}

}  // namespace ddprun
