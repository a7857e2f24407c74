// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/wire/failure_convert.h"

#include <algorithm>

#include "proto/failure_record.h"
#include "proto/text.h"
#include "rendezvous/base/limits.h"
#include "rendezvous/base/peer_limits.h"
#include "rendezvous/base/printable.h"
#include "rendezvous/wire/scalars.h"

namespace ddprun {
namespace {

// The values of our enums are those of the messages.
static_assert(static_cast<int>(FailureKind::kWorkerExited) == v1::Failure::WORKER_EXITED);
static_assert(static_cast<int>(FailureKind::kWorkerHung) == v1::Failure::WORKER_HUNG);
static_assert(static_cast<int>(FailureKind::kRunStopped) == v1::Failure::RUN_STOPPED);
static_assert(static_cast<int>(FailureKind::kNodeDrained) == v1::Failure::NODE_DRAINED);
static_assert(static_cast<int>(HangKind::kNoProgress) == v1::Hang::NO_PROGRESS);
static_assert(static_cast<int>(HangKind::kNoOutput) == v1::Hang::NO_OUTPUT);
static_assert(static_cast<int>(EndKind::kExited) == v1::WorkerEnds::EXITED);
static_assert(static_cast<int>(EndKind::kSucceeded) == v1::WorkerEnds::SUCCEEDED);

v1::Hang ToProto(const Hang& from) {
  v1::Hang to;
  to.set_kind(static_cast<v1::Hang::Kind>(from.kind));
  *to.mutable_silent() = ToDuration(from.silent);
  if (from.step >= 0) to.set_step(from.step);
  to.set_section(ToUtf8(CutText(from.section, kSectionBytesMax)));
  if (from.others_step >= 0) to.set_others_step(from.others_step);
  for (std::size_t i = 0; i < std::min(from.stack.size(), kStackLinesMax); ++i) {
    to.add_stack(ToUtf8(CutText(from.stack[i], kStackLineBytesMax)));
  }
  return to;
}

Hang FromProto(const v1::Hang& from) {
  Hang to;
  if (v1::Hang::Kind_IsValid(from.kind()) && from.kind() > 0) {
    to.kind = static_cast<HangKind>(from.kind());
  }
  to.silent = ToMilliseconds(from.silent());
  to.step = from.has_step() ? std::max<std::int64_t>(from.step(), -1) : -1;
  to.section = Printable(CutText(from.section(), kSectionBytesMax));
  to.others_step = from.has_others_step() ? std::max<std::int64_t>(from.others_step(), -1) : -1;
  const int lines = std::min(from.stack_size(), static_cast<int>(kStackLinesMax));
  for (int i = 0; i < lines; ++i) {
    to.stack.push_back(Printable(CutText(from.stack(i), kStackLineBytesMax)));
  }
  return to;
}

v1::Collective ToProto(const Collective& from) {
  v1::Collective to;
  to.set_group(ToUtf8(CutText(from.group, kCollectiveNameBytesMax)));
  to.set_number(from.number);
  to.set_name(ToUtf8(CutText(from.name, kCollectiveNameBytesMax)));
  if (from.bytes >= 0) to.set_bytes(from.bytes);
  to.set_dtype(ToUtf8(CutText(from.dtype, kCollectiveNameBytesMax)));
  return to;
}

Collective FromProto(const v1::Collective& from) {
  return {.group = Printable(CutText(from.group(), kCollectiveNameBytesMax)),
          .number = std::max<std::int64_t>(from.number(), 0),
          .name = Printable(CutText(from.name(), kCollectiveNameBytesMax)),
          .bytes = from.has_bytes() ? std::max<std::int64_t>(from.bytes(), -1) : -1,
          .dtype = Printable(CutText(from.dtype(), kCollectiveNameBytesMax))};
}

v1::RanksInPlace ToProto(const RanksInPlace& from) {
  v1::RanksInPlace to;
  AddRanges(from.ranks, to.mutable_ranges());
  if (from.place.waits) *to.mutable_waits() = ToProto(*from.place.waits);
  for (const Collective& last : from.place.last) *to.add_last() = ToProto(last);
  return to;
}

RanksInPlace FromProto(const v1::RanksInPlace& from) {
  RanksInPlace to;
  to.ranks = RangesOf(from.ranges(), kOutcomeRangesShown);
  std::erase_if(to.ranks, [](RankRange one) { return one.first < 0 || one.last < one.first; });
  if (from.has_waits()) to.place.waits = FromProto(from.waits());
  const int groups = std::min(from.last_size(), static_cast<int>(kCollectiveGroupsMax));
  for (int i = 0; i < groups; ++i) to.place.last.push_back(FromProto(from.last(i)));
  return to;
}

}  // namespace

v1::WorkerEnds::Kind ToProto(EndKind kind) { return static_cast<v1::WorkerEnds::Kind>(kind); }

EndKind FromProto(v1::WorkerEnds::Kind kind) {
  const bool known = v1::WorkerEnds::Kind_IsValid(kind) && kind > 0;
  return known ? static_cast<EndKind>(kind) : EndKind::kStopped;
}

v1::Failure ToProto(const Failure& from) {
  v1::Failure to;
  to.set_kind(static_cast<v1::Failure::Kind>(from.kind));
  to.set_rank(from.rank);
  to.set_local_rank(from.local_rank);
  to.set_node_rank(from.node_rank);
  to.set_host(ToUtf8(from.host));
  to.set_pid(from.pid);
  to.set_exit_code(from.exit_code);
  to.set_signal(from.signal);
  to.set_message(ToUtf8(CutText(from.message, kFailureMessageBytesMax)));
  const std::size_t skip = from.last_lines.size() - std::min(from.last_lines.size(), kLastLinesMax);
  for (std::size_t i = skip; i < from.last_lines.size(); ++i) {
    to.add_last_lines(ToUtf8(CutText(from.last_lines[i], kLastLineBytesMax)));
  }
  *to.mutable_age() = ToDuration(from.age);
  if (from.oom) {
    to.mutable_oom()->set_used_bytes(from.oom->used_bytes);
    to.mutable_oom()->set_limit_bytes(from.oom->limit_bytes);
    to.mutable_oom()->set_of_cgroup(from.oom->of_cgroup);
  }
  to.set_core_file(ToUtf8(CutText(from.core_file, kPathBytesMax)));
  to.set_traceback(ToUtf8(CutText(from.traceback, kTracebackBytesMax)));
  if (from.hang) *to.mutable_hang() = ToProto(*from.hang);
  for (std::size_t i = 0; i < std::min(from.places.size(), kCollectivePlacesMax); ++i) {
    *to.add_places() = ToProto(from.places[i]);
  }
  return to;
}

Failure FromProto(const v1::Failure& from) {
  Failure to;
  if (v1::Failure::Kind_IsValid(from.kind()) && from.kind() > 0) {
    to.kind = static_cast<FailureKind>(from.kind());
  }
  to.rank = from.rank();
  to.local_rank = from.local_rank();
  to.node_rank = from.node_rank();
  to.host = PrintableName(from.host());
  to.pid = from.pid();
  to.exit_code = from.exit_code();
  to.signal = from.signal();
  to.message = PrintableLines(from.message(), kFailureMessageBytesMax);
  const int lines_max = static_cast<int>(kLastLinesMax);
  for (int i = std::max(0, from.last_lines_size() - lines_max); i < from.last_lines_size(); ++i) {
    to.last_lines.push_back(Printable(CutText(from.last_lines(i), kLastLineBytesMax)));
  }
  to.age = ToMilliseconds(from.age());
  if (from.has_oom()) {
    to.oom = OomKill{from.oom().used_bytes(), from.oom().limit_bytes(), from.oom().of_cgroup()};
  }
  to.core_file = Printable(CutText(from.core_file(), kPathBytesMax));
  to.traceback = PrintableLines(from.traceback(), kTracebackBytesMax);
  if (from.has_hang()) to.hang = FromProto(from.hang());
  const int places = std::min(from.places_size(), static_cast<int>(kCollectivePlacesMax));
  for (int i = 0; i < places; ++i) to.places.push_back(FromProto(from.places(i)));
  return to;
}

v1::WorkerOutcomes ToProto(const WorkerOutcomes& from) {
  v1::WorkerOutcomes to;
  to.set_kind(ToProto(from.kind));
  to.set_code(from.code);
  to.set_count(from.count);
  AddRanges(from.ranges, to.mutable_ranges());
  for (const std::string& host : from.hosts) to.add_hosts(ToUtf8(host));
  return to;
}

WorkerOutcomes FromProto(const v1::WorkerOutcomes& from) {
  WorkerOutcomes to;
  to.kind = FromProto(from.kind());
  to.code = from.code();
  to.count = from.count();
  to.ranges = RangesOf(from.ranges(), kOutcomeRangesMax);
  const int hosts = std::min(from.hosts_size(), static_cast<int>(kOutcomeHostsShown));
  for (int i = 0; i < hosts; ++i) to.hosts.push_back(PrintableName(from.hosts(i)));
  return to;
}

v1::Verdict ToProto(const Verdict& from) {
  v1::Verdict to;
  to.set_success(from.success);
  if (from.cause) *to.mutable_cause() = ToProto(*from.cause);
  to.set_exit_code(from.exit_code);
  to.set_round(ToNumber(from.round));
  to.set_restart_count(from.restart_count);
  to.set_restarts_max(from.restarts_max);
  to.set_world_size(from.world_size);
  to.set_node_count(from.node_count);
  to.set_restarts_forgiven(from.restarts_forgiven);
  to.set_not_restarted(ToUtf8(CutText(from.not_restarted, kFailureMessageBytesMax)));
  for (const WorkerOutcomes& outcomes : from.outcomes) *to.add_outcomes() = ToProto(outcomes);
  return to;
}

Verdict FromProto(const v1::Verdict& from) {
  Verdict to;
  to.success = from.success();
  if (from.has_cause()) to.cause = FromProto(from.cause());
  to.exit_code = from.exit_code();
  to.round = RoundId{from.round()};
  to.restart_count = from.restart_count();
  to.restarts_max = from.restarts_max();
  to.world_size = from.world_size();
  to.node_count = from.node_count();
  to.restarts_forgiven = from.restarts_forgiven();
  to.not_restarted = PrintableLines(from.not_restarted(), kFailureMessageBytesMax);
  const int ways = std::min(from.outcomes_size(), static_cast<int>(kOutcomeWaysMax));
  for (int i = 0; i < ways; ++i) to.outcomes.push_back(FromProto(from.outcomes(i)));
  return to;
}

Verdict FromService(const v1::Verdict& message) {
  Verdict verdict = FromProto(message);
  const bool failed =
      !verdict.success && !(verdict.cause && verdict.cause->kind == FailureKind::kNodeDrained);
  verdict.exit_code = failed ? ClampExitCode(verdict.exit_code) : 0;
  return verdict;
}

}  // namespace ddprun
