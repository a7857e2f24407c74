// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/membership/membership_step.h"

#include <algorithm>
#include <csignal>
#include <utility>

#include "rendezvous/membership/restart_policy.h"

namespace ddprun {
namespace {

bool IsSignal(int number) { return number >= 1 && number <= SIGRTMAX; }

void FillInWho(const Member& member, Failure& failure) {
  failure.host = member.join.host;
  failure.node_rank = member.node_rank.value_or(-1);
}

RankRange OwnRanks(const Member& member) {
  return {member.rank_first, member.rank_first + member.join.local_world_size - 1};
}

// The name of the role of its worker, and the worker's rank in it.
void FillInRole(const Member& member, Failure& failure) {
  failure.role.clear();
  failure.role_rank = 0;
  if (failure.local_rank < 0 || member.roles.size() != member.join.roles.size()) return;
  int first = 0;
  for (std::size_t i = 0; i < member.roles.size(); ++i) {
    const RoleWorkers& role = member.join.roles[i];
    if (failure.local_rank < first + role.workers) {
      failure.role = role.name;
      failure.role_rank = member.roles[i].rank_first + failure.local_rank - first;
      return;
    }
    first += role.workers;
  }
}

// Keeps the places of its own workers.
void KeepOwnPlaces(const RankRange& own, std::vector<RanksInPlace>& places) {
  for (RanksInPlace& entry : places) {
    std::erase_if(entry.ranks, [&own](const RankRange& range) {
      return range.first < own.first || range.last > own.last;
    });
  }
  std::erase_if(places, [](const RanksInPlace& entry) { return entry.ranks.empty(); });
}

// Fields of other kinds of failures would change the evaluation.
void DropForeignFields(Failure& failure) {
  const FailureKind kind = failure.kind;
  const bool has_code = kind == FailureKind::kWorkerExited || kind == FailureKind::kSpawnFailed ||
                        kind == FailureKind::kWorkerEndedEarly;
  failure.exit_code = has_code ? ClampExitCode(failure.exit_code) : 0;
  if (kind != FailureKind::kWorkerSignaled) {
    failure.signal = 0;
    failure.oom.reset();
  }
  if (kind != FailureKind::kWorkerHung) {
    failure.hang.reset();
  } else if (!failure.hang) {
    failure.hang.emplace();
  }
}

}  // namespace

Failure WorkerFailureFrom(const Member& member, Failure reported) {
  Failure failure = std::move(reported);
  FillInWho(member, failure);
  const int size = member.join.local_world_size;
  const RankRange own = OwnRanks(member);
  if (failure.rank >= own.first && failure.rank <= own.last) {
    failure.local_rank = failure.rank - own.first;
  } else if (failure.local_rank >= 0 && failure.local_rank < size) {
    failure.rank = own.first + failure.local_rank;
  } else {
    failure.rank = failure.local_rank = -1;
  }
  FillInRole(member, failure);
  const bool is_signal = failure.kind == FailureKind::kWorkerSignaled;
  const bool is_workers =
      IsWorkersEnd(failure.kind) || failure.kind == FailureKind::kCollectiveFailed;
  if (!is_workers || (is_signal && !IsSignal(failure.signal))) {
    failure.kind = FailureKind::kWorkerExited;
  }
  DropForeignFields(failure);
  failure.age = std::max(failure.age, std::chrono::milliseconds{0});
  KeepOwnPlaces(own, failure.places);
  return failure;
}

std::vector<RanksInPlace> OwnPlacesFrom(const Member& member, std::vector<RanksInPlace> reported) {
  KeepOwnPlaces(OwnRanks(member), reported);
  return reported;
}

Failure LeaveReasonFrom(const Member& member, Failure reported) {
  Failure reason;
  reason.kind = FailureKind::kNodeInterrupted;
  FillInWho(member, reason);
  reason.signal = IsSignal(reported.signal) ? reported.signal : 0;
  reason.message = std::move(reported.message);
  return reason;
}

std::vector<WorkerEnds> WorkerEndsFrom(const Member& member,
                                       const std::vector<WorkerEnds>& reported) {
  std::vector<WorkerEnds> ends;
  int next = 0;  // they come in the order of local ranks
  for (WorkerEnds end : reported) {
    if (end.first < next || end.count <= 0) continue;
    if (end.count > member.join.local_world_size - end.first) continue;
    next = end.first + end.count;
    switch (end.kind) {
      case EndKind::kExited:
      case EndKind::kNotStarted:
        end.code = ClampExitCode(end.code);
        break;
      case EndKind::kSignaled:
        if (!IsSignal(end.code)) end = {EndKind::kExited, ClampExitCode(0), end.first, end.count};
        break;
      case EndKind::kLost:  // not for the node itself to report
        end.kind = EndKind::kStopped;
        end.code = 0;
        break;
      case EndKind::kStopped:
      case EndKind::kSucceeded:
        end.code = 0;
        break;
    }
    ends.push_back(end);
  }
  return ends;
}

}  // namespace ddprun
