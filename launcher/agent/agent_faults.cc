// SPDX-License-Identifier: Apache-2.0
// Agent: faults that an operator injects on purpose (`ddpctl chaos`), and questions for stacks.
#include <unistd.h>

#include <algorithm>
#include <csignal>

#include "absl/strings/str_cat.h"
#include "launcher/agent/agent.h"
#include "launcher/chaos/fault_table.h"

namespace ddprun {

void Agent::HandleFault(const Fault& fault, TimePoint now) {
  FaultReport report{.id = fault.id};
  if (fault.kind == FaultKind::kStacks) {
    const absl::Status begun = watch_.BeginStacks(fault.id, fault.local_rank, now);
    report.words = std::string(begun.message());
    if (!begun.ok()) session_.Send(std::move(report));
    return;  // the loop sends the answer
  }
  if (const auto progress = watch_.CurrentProgress()) {
    report.step = progress->step;
    report.epoch = progress->epoch;
  }
  const absl::StatusOr<std::string> done = CarryOut(fault, now);
  report.done = done.ok();
  report.words = done.ok() ? *done : std::string(done.status().message());
  if (report.done && fault.kind != FaultKind::kUndo) {
    const std::string words = absl::StrCat("chaos: ", *done, ", asked by ", fault.by);
    Print(words);
    observer_.OnFault(state_.round.has_value() ? &*state_.round : nullptr, fault.local_rank, words);
    watch_.ReportOften(now);
  }
  session_.Send(std::move(report));
  if (!done.ok() || fault.kind != FaultKind::kAgent) return;
  console_.Pump();
  kill(getpid(), SIGKILL);
}

absl::StatusOr<std::string> Agent::CarryOut(const Fault& fault, TimePoint now) {
  if (fault.kind == FaultKind::kUndo) {
    faults_.UndoAll();
    return "all lasting faults are undone";
  }
  if (fault.kind == FaultKind::kAgent)
    return absl::StrCat("SIGKILL to the agent (pid ", getpid(), ")");
  if (fault.kind == FaultKind::kSession) {
    // Within the time in which the node may come back.
    const auto pause =
        std::min(DurationOf(fault.kind, fault.duration), session_.reconnect_timeout() / 2);
    if (!session_.BreakFor(pause)) {
      return absl::FailedPreconditionError(
          "not possible here: the rendezvous service is in this node's own agent");
    }
    return absl::StrCat("no connection to the service for ", pause.count(), " ms");
  }
  const int local_rank = fault.local_rank;
  const bool exists = local_rank >= 0 && local_rank < workers_.table().size();
  const std::optional<pid_t> pid = exists && workers_.table().IsLive(local_rank)
                                       ? workers_.table().pid(local_rank)
                                       : std::nullopt;
  if (!pid.has_value() || !state_.round.has_value()) {
    return absl::FailedPreconditionError(
        "the worker does not run now; it has ended or is starting");
  }
  const FaultyWorker worker{.rank = state_.round->rank_first + local_rank,
                            .pid = *pid,
                            .pidfd = workers_.table().pidfd(local_rank)};
  absl::StatusOr<std::string> done = faults_.Inject(fault, worker, now);
  if (done.ok() && InfoOf(fault.kind).ends_round) workers_.SetAskedBy(local_rank, fault.by);
  return done;
}

}  // namespace ddprun
