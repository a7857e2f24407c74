// SPDX-License-Identifier: Apache-2.0
#include "launcher/supervisor/worker_failure.h"

#include <algorithm>
#include <utility>

#include "launcher/supervisor/likely_cause.h"
#include "rendezvous/values/collectives.h"
#include "rendezvous/values/divergence.h"
#include "rendezvous/values/first_cause.h"
#include "rendezvous/values/rank_ranges.h"

namespace ddprun {
namespace {

// The members that all these events have.
template <typename Event>
Failure FailureOf(const Event& event, const Start& start, const std::string& host) {
  Failure failure;
  failure.rank = start.rank_first + event.local_rank;
  failure.local_rank = event.local_rank;
  failure.node_rank = start.node_rank;
  failure.host = host;
  failure.pid = event.pid;
  failure.age = event.age;
  failure.last_lines = event.last_lines;
  failure.places = event.places;
  return failure;
}

}  // namespace

Failure ToFailure(const WorkerEnded& ended, const Start& start, const std::string& host) {
  Failure failure = FailureOf(ended, start, host);
  failure.message = ended.message;
  failure.traceback = ended.traceback;
  failure.oom = ended.oom;
  failure.core_file = ended.core_file;
  failure.asked_by = ended.asked_by;
  if (const auto* exited = std::get_if<Exited>(&ended.outcome)) {
    failure.kind = FailureKind::kWorkerExited;
    failure.exit_code = exited->code;
  } else if (const auto* signaled = std::get_if<Signaled>(&ended.outcome)) {
    failure.kind = FailureKind::kWorkerSignaled;
    failure.signal = signaled->signal;
  } else if (const auto* unspawned = std::get_if<SpawnFailed>(&ended.outcome)) {
    failure.kind = FailureKind::kSpawnFailed;
    failure.exit_code = unspawned->exit_code;
    failure.message = unspawned->message;
  }
  failure.advice = LikelyCause(failure, ended.evidence);
  return failure;
}

Failure ToFailure(const WorkerHung& hung, const Start& start, const std::string& host) {
  Failure failure = FailureOf(hung, start, host);
  failure.kind = FailureKind::kWorkerHung;
  failure.hang = hung.hang;
  return failure;
}

Failure ToFailure(const WorkerLeft& left, const Start& start, const std::string& host) {
  Failure failure = FailureOf(left, start, host);
  failure.kind = FailureKind::kCollectiveFailed;
  failure.message = left.error;
  return failure;
}

std::optional<Failure> FindEarlyEnd(const std::vector<WorkerEnded>& succeeded, const Failure& cause,
                                    const Start& start, const std::string& host) {
  if (succeeded.empty() || !MayBeOfEarlyEnd(cause)) return std::nullopt;
  std::vector<RanksInPlace> places = cause.places;
  for (const WorkerEnded& ended : succeeded) MergePlaces(ended.places, places);
  const std::optional<Divergence> missed = FindDivergence(places);
  if (!missed || missed->called) return std::nullopt;
  const auto is_missed = [&](const WorkerEnded& ended) {
    return Contains(missed->ranks, start.rank_first + ended.local_rank);
  };
  const auto found = std::find_if(succeeded.begin(), succeeded.end(), is_missed);
  if (found == succeeded.end()) return std::nullopt;
  Failure failure = FailureOf(*found, start, host);
  failure.kind = FailureKind::kWorkerEndedEarly;
  failure.exit_code = ToExitCode(cause);
  failure.places = std::move(places);
  return failure;
}

WorkerEnds ToWorkerEnds(const WorkerEnded& ended) {
  WorkerEnds end{.first = ended.local_rank};
  if (IsSuccess(ended.outcome)) {
    end.kind = EndKind::kSucceeded;
  } else if (ended.stopped) {
    end.kind = EndKind::kStopped;
  } else if (const auto* exited = std::get_if<Exited>(&ended.outcome)) {
    end.kind = EndKind::kExited;
    end.code = exited->code;
  } else if (const auto* signaled = std::get_if<Signaled>(&ended.outcome)) {
    end.kind = EndKind::kSignaled;
    end.code = signaled->signal;
  } else if (const auto* unspawned = std::get_if<SpawnFailed>(&ended.outcome)) {
    end.kind = EndKind::kNotStarted;
    end.code = unspawned->exit_code;
  }
  return end;
}

}  // namespace ddprun
