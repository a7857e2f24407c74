// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/wire/failure_convert.h"

#include "proto/failure_record.h"
#include "rendezvous/base/limits.h"
#include "rendezvous/wire/fields.h"

namespace ddprun {

DDPRUN_MESSAGE(RankTime) {
  FIELD_AS(value[TimeClass::kTraining], training);
  FIELD_AS(value[TimeClass::kWaiting], waiting);
  FIELD_AS(value[TimeClass::kRecovery], recovery);
  FIELD_AS(value[TimeClass::kCheckpoint], checkpoint);
  FIELD_AS(value[TimeClass::kData], data);
  FIELD_AS(value[TimeClass::kEvaluation], evaluation);
  FIELD_AS(value[TimeClass::kStart], start);
  if constexpr (LOADING) {
    for (RankTime::Time& time : value.times)
      time = std::clamp(time, RankTime::Time{0}, RankTime::kMax);
  }
}

DDPRUN_MESSAGE(Hang) {
  FIELD(kind);
  FIELD(silent);
  COUNT(step);
  TEXT(section, kSectionBytesMax);
  COUNT(others_step);
  TEXTS(stack, kStackLinesMax, kStackLineBytesMax);
}

DDPRUN_MESSAGE(Collective) {
  TEXT(group, kCollectiveNameBytesMax);
  FIELD(number);
  TEXT(name, kCollectiveNameBytesMax);
  COUNT(bytes);
  TEXT(dtype, kCollectiveNameBytesMax);
  if constexpr (LOADING) value.number = std::max<std::int64_t>(value.number, 0);
}

DDPRUN_MESSAGE(RanksInPlace) {
  RANGES(value.ranks, ranges, kOutcomeRangesShown);
  FIELD_AS(value.place.waits, waits);
  LIST_AS(value.place.last, last, kCollectivesDoneMax);
  if constexpr (LOADING) {
    std::erase_if(value.ranks, [](RankRange one) { return one.first < 0 || one.last < one.first; });
  }
}

DDPRUN_MESSAGE(OomKill) {
  FIELD(used_bytes);
  FIELD(limit_bytes);
  FIELD(of_cgroup);
}

DDPRUN_MESSAGE(Failure) {
  FIELD(kind);
  FIELD(rank);
  FIELD(local_rank);
  FIELD(node_rank);
  TEXT(host, kNameBytesMax);
  FIELD(pid);
  FIELD(exit_code);
  FIELD(signal);
  LINES(message, kFailureMessageBytesMax);
  // The last ones, which say why.
  LAST_TEXTS(last_lines, kLastLinesMax, kLastLineBytesMax);
  FIELD(age);
  FIELD(oom);
  TEXT(core_file, kPathBytesMax);
  LINES(traceback, kTracebackBytesMax);
  FIELD(hang);
  LIST(places, kCollectivePlacesMax);
  TEXT(asked_by, kNameBytesMax);
  TEXT(role, kNameBytesMax);
  FIELD(role_rank);
  TEXT(advice, kLastLineBytesMax);
}

DDPRUN_MESSAGE(WorkerOutcomes) {
  FIELD(kind);
  FIELD(code);
  FIELD(count);
  RANGES(value.ranges, ranges, kOutcomeRangesMax);
  TEXTS(hosts, kOutcomeHostsShown, kNameBytesMax);
}

DDPRUN_MESSAGE(Verdict) {
  FIELD(success);
  FIELD(cause);
  FIELD(exit_code);
  FIELD(round);
  FIELD(restart_count);
  FIELD(restarts_max);
  FIELD(world_size);
  FIELD(node_count);
  LIST(outcomes, kOutcomeWaysMax);
  FIELD(restarts_forgiven);
  LINES(not_restarted, kFailureMessageBytesMax);
  FIELD(time);
}
Verdict FromService(const v1::Verdict& message) {
  Verdict verdict = FromProto(message);
  const bool failed =
      !verdict.success && !(verdict.cause && verdict.cause->kind == FailureKind::kNodeDrained);
  verdict.exit_code = failed ? ClampExitCode(verdict.exit_code) : 0;
  return verdict;
}

}  // namespace ddprun
