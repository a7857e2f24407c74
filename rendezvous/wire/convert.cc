// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/wire/convert.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "proto/failure_record.h"
#include "proto/version.h"
#include "rendezvous/base/limits.h"
#include "rendezvous/base/overloaded.h"
#include "rendezvous/base/peer_limits.h"
#include "rendezvous/base/printable.h"
#include "rendezvous/wire/log_convert.h"
#include "rendezvous/wire/restart_convert.h"

namespace ddprun {

using std::chrono::milliseconds;

std::chrono::milliseconds ToMilliseconds(const google::protobuf::Duration& from) {
  constexpr std::int64_t kSecondsMax = 366LL * 24 * 3600;
  const std::int64_t seconds = std::clamp<std::int64_t>(from.seconds(), -kSecondsMax, kSecondsMax);
  return milliseconds(seconds * 1000 + from.nanos() / 1'000'000);
}

std::string ToUtf8(const std::string& text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size();) {
    const auto lead = static_cast<unsigned char>(text[i]);
    const std::size_t length = lead < 0x80                   ? 1
                               : lead >= 0xC2 && lead < 0xE0 ? 2
                               : (lead & 0xF0) == 0xE0       ? 3
                               : lead >= 0xF0 && lead < 0xF5 ? 4
                                                             : 0;
    bool good = length > 0 && i + length <= text.size();
    for (std::size_t k = 1; good && k < length; ++k) {
      good = (static_cast<unsigned char>(text[i + k]) & 0xC0) == 0x80;
    }
    if (good && length == 3) {
      const auto second = static_cast<unsigned char>(text[i + 1]);
      good = !(lead == 0xE0 && second < 0xA0) && !(lead == 0xED && second >= 0xA0);
    }
    if (good && length == 4) {
      const auto second = static_cast<unsigned char>(text[i + 1]);
      good = !(lead == 0xF0 && second < 0x90) && !(lead == 0xF4 && second >= 0x90);
    }
    out.append(good ? text.substr(i, length) : "?");
    i += good ? length : 1;
  }
  return out;
}

namespace {

void SetDuration(milliseconds from, google::protobuf::Duration* to) {
  to->set_seconds(from.count() / 1000);
  to->set_nanos(static_cast<std::int32_t>(from.count() % 1000) * 1'000'000);
}

// Not within a character: what was cut once must come through the next conversion as it is, or a
// journal would replay another text than the one that was acted on.
std::string Cut(std::string text, std::size_t size_max) {
  if (text.size() <= size_max) return text;
  std::size_t size = size_max;
  for (int i = 0; i < 3 && size > 0; ++i) {
    if ((static_cast<unsigned char>(text[size]) & 0xC0) != 0x80) break;
    --size;
  }
  text.resize(size);
  return text;
}

// Names end up in sentences on a person's terminal and in logs.
std::string Name(const std::string& text) { return Printable(Cut(text, kNameBytesMax)); }

// A worker's own words may have several lines; each is shown as one, indented.
std::string Lines(const std::string& text, std::size_t size_max) {
  std::vector<std::string> lines = absl::StrSplit(Cut(text, size_max), '\n');
  for (std::string& line : lines) line = Printable(line);
  return absl::StrJoin(lines, "\n");
}

v1::Failure::Kind ToProto(FailureKind kind) {
  switch (kind) {
    case FailureKind::kWorkerExited:
      return v1::Failure::WORKER_EXITED;
    case FailureKind::kWorkerSignaled:
      return v1::Failure::WORKER_SIGNALED;
    case FailureKind::kSpawnFailed:
      return v1::Failure::SPAWN_FAILED;
    case FailureKind::kNodeLost:
      return v1::Failure::NODE_LOST;
    case FailureKind::kNodeInterrupted:
      return v1::Failure::NODE_INTERRUPTED;
    case FailureKind::kJoinTimeout:
      return v1::Failure::JOIN_TIMEOUT;
    case FailureKind::kRunStopped:
      return v1::Failure::RUN_STOPPED;
    case FailureKind::kNodeDrained:
      return v1::Failure::NODE_DRAINED;
    case FailureKind::kWorkerHung:
      return v1::Failure::WORKER_HUNG;
  }
  return v1::Failure::KIND_UNSPECIFIED;
}

FailureKind FromProto(v1::Failure::Kind kind) {
  switch (kind) {
    case v1::Failure::WORKER_SIGNALED:
      return FailureKind::kWorkerSignaled;
    case v1::Failure::SPAWN_FAILED:
      return FailureKind::kSpawnFailed;
    case v1::Failure::NODE_LOST:
      return FailureKind::kNodeLost;
    case v1::Failure::NODE_INTERRUPTED:
      return FailureKind::kNodeInterrupted;
    case v1::Failure::JOIN_TIMEOUT:
      return FailureKind::kJoinTimeout;
    case v1::Failure::RUN_STOPPED:
      return FailureKind::kRunStopped;
    case v1::Failure::NODE_DRAINED:
      return FailureKind::kNodeDrained;
    case v1::Failure::WORKER_HUNG:
      return FailureKind::kWorkerHung;
    default:
      return FailureKind::kWorkerExited;
  }
}

static_assert(static_cast<int>(HangKind::kNoProgress) + 1 == v1::Hang::NO_PROGRESS);
static_assert(static_cast<int>(HangKind::kNoOutput) + 1 == v1::Hang::NO_OUTPUT);

void Fill(const Hang& from, v1::Hang* to) {
  to->set_kind(static_cast<v1::Hang::Kind>(static_cast<int>(from.kind) + 1));
  SetDuration(from.silent, to->mutable_silent());
  if (from.step >= 0) to->set_step(from.step);
  to->set_section(ToUtf8(Cut(from.section, kSectionBytesMax)));
  if (from.others_step >= 0) to->set_others_step(from.others_step);
  for (std::size_t i = 0; i < std::min(from.stack.size(), kStackLinesMax); ++i) {
    to->add_stack(ToUtf8(Cut(from.stack[i], kStackLineBytesMax)));
  }
}

Hang Read(const v1::Hang& from) {
  Hang to;
  if (v1::Hang::Kind_IsValid(from.kind()) && from.kind() > 0) {
    to.kind = static_cast<HangKind>(static_cast<int>(from.kind()) - 1);
  }
  to.silent = ToMilliseconds(from.silent());
  to.step = from.has_step() ? std::max<std::int64_t>(from.step(), -1) : -1;
  to.section = Printable(Cut(from.section(), kSectionBytesMax));
  to.others_step = from.has_others_step() ? std::max<std::int64_t>(from.others_step(), -1) : -1;
  const int lines = std::min(from.stack_size(), static_cast<int>(kStackLinesMax));
  for (int i = 0; i < lines; ++i) {
    to.stack.push_back(Printable(Cut(from.stack(i), kStackLineBytesMax)));
  }
  return to;
}

void Fill(const Collective& from, v1::Collective* to) {
  to->set_group(ToUtf8(Cut(from.group, kCollectiveNameBytesMax)));
  to->set_number(from.number);
  to->set_name(ToUtf8(Cut(from.name, kCollectiveNameBytesMax)));
  if (from.bytes >= 0) to->set_bytes(from.bytes);
  to->set_dtype(ToUtf8(Cut(from.dtype, kCollectiveNameBytesMax)));
}

Collective Read(const v1::Collective& from) {
  return {.group = Printable(Cut(from.group(), kCollectiveNameBytesMax)),
          .number = std::max<std::int64_t>(from.number(), 0),
          .name = Printable(Cut(from.name(), kCollectiveNameBytesMax)),
          .bytes = from.has_bytes() ? std::max<std::int64_t>(from.bytes(), -1) : -1,
          .dtype = Printable(Cut(from.dtype(), kCollectiveNameBytesMax))};
}

void Fill(const RanksInPlace& from, v1::RanksInPlace* to) {
  for (const RankRange& range : from.ranks) {
    to->add_ranges(range.first);
    to->add_ranges(range.last);
  }
  if (from.place.waits) Fill(*from.place.waits, to->mutable_waits());
  for (const Collective& last : from.place.last) Fill(last, to->add_last());
}

RanksInPlace Read(const v1::RanksInPlace& from) {
  RanksInPlace to;
  const int numbers = std::min(from.ranges_size(), 2 * static_cast<int>(kOutcomeRangesShown));
  for (int i = 0; i + 1 < numbers; i += 2) {
    // One that is no range, or of more ranks than a run can have, says nothing.
    if (from.ranges(i) < 0 || from.ranges(i + 1) < from.ranges(i)) continue;
    to.ranks.push_back({from.ranges(i), from.ranges(i + 1)});
  }
  if (from.has_waits()) to.place.waits = Read(from.waits());
  const int groups = std::min(from.last_size(), static_cast<int>(kCollectiveGroupsMax));
  for (int i = 0; i < groups; ++i) to.place.last.push_back(Read(from.last(i)));
  return to;
}

void Fill(const Failure& from, v1::Failure* to) {
  to->set_kind(ToProto(from.kind));
  to->set_rank(from.rank);
  to->set_local_rank(from.local_rank);
  to->set_node_rank(from.node_rank);
  to->set_host(ToUtf8(from.host));
  to->set_pid(from.pid);
  to->set_exit_code(from.exit_code);
  to->set_signal(from.signal);
  to->set_message(ToUtf8(Cut(from.message, kFailureMessageBytesMax)));
  const std::size_t skip = from.last_lines.size() - std::min(from.last_lines.size(), kLastLinesMax);
  for (std::size_t i = skip; i < from.last_lines.size(); ++i) {
    to->add_last_lines(ToUtf8(Cut(from.last_lines[i], kLastLineBytesMax)));
  }
  SetDuration(from.age, to->mutable_age());
  if (from.oom) {
    to->mutable_oom()->set_used_bytes(from.oom->used_bytes);
    to->mutable_oom()->set_limit_bytes(from.oom->limit_bytes);
    to->mutable_oom()->set_of_cgroup(from.oom->of_cgroup);
  }
  to->set_core_file(ToUtf8(Cut(from.core_file, kPathBytesMax)));
  to->set_traceback(ToUtf8(Cut(from.traceback, kTracebackBytesMax)));
  if (from.hang) Fill(*from.hang, to->mutable_hang());
  for (std::size_t i = 0; i < std::min(from.places.size(), kCollectivePlacesMax); ++i) {
    Fill(from.places[i], to->add_places());
  }
}

void Fill(const Heartbeat& from, v1::Heartbeat* to) {
  if (from.progress_round == kNoRound) return;
  to->set_round(ToNumber(from.progress_round));
  *to->mutable_progress() = ddprun::ToProto(from.progress);
}

Heartbeat Read(const v1::Heartbeat& from) {
  Heartbeat to;
  if (from.round() == 0) return to;
  to.progress_round = RoundId{from.round()};
  to.progress = ddprun::FromProto(from.progress());
  return to;
}

v1::WorkerEnds::Kind ToProto(EndKind kind) {
  // Ours plus one, since their zero is "unspecified".
  static_assert(static_cast<int>(EndKind::kExited) + 1 == v1::WorkerEnds::EXITED);
  static_assert(static_cast<int>(EndKind::kSucceeded) + 1 == v1::WorkerEnds::SUCCEEDED);
  return static_cast<v1::WorkerEnds::Kind>(static_cast<int>(kind) + 1);
}

EndKind FromProto(v1::WorkerEnds::Kind kind) {
  const bool known = v1::WorkerEnds::Kind_IsValid(kind) && kind > 0;
  return known ? static_cast<EndKind>(static_cast<int>(kind) - 1) : EndKind::kStopped;
}

Failure Read(const v1::Failure& from) {
  Failure to;
  to.kind = FromProto(from.kind());
  to.rank = from.rank();
  to.local_rank = from.local_rank();
  to.node_rank = from.node_rank();
  to.host = Name(from.host());
  to.pid = from.pid();
  to.exit_code = from.exit_code();
  to.signal = from.signal();
  to.message = Lines(from.message(), kFailureMessageBytesMax);
  const int lines_max = static_cast<int>(kLastLinesMax);
  for (int i = std::max(0, from.last_lines_size() - lines_max); i < from.last_lines_size(); ++i) {
    to.last_lines.push_back(Printable(Cut(from.last_lines(i), kLastLineBytesMax)));
  }
  to.age = ToMilliseconds(from.age());
  if (from.has_oom()) {
    to.oom = OomKill{from.oom().used_bytes(), from.oom().limit_bytes(), from.oom().of_cgroup()};
  }
  to.core_file = Printable(Cut(from.core_file(), kPathBytesMax));
  to.traceback = Lines(from.traceback(), kTracebackBytesMax);
  if (from.has_hang()) to.hang = Read(from.hang());
  const int places = std::min(from.places_size(), static_cast<int>(kCollectivePlacesMax));
  for (int i = 0; i < places; ++i) to.places.push_back(Read(from.places(i)));
  return to;
}

void Fill(const NodeStopped& from, v1::NodeStopped* to) {
  to->set_round(ToNumber(from.round));
  to->set_worker_port(from.worker_port);
  for (const WorkerEnds& ends : from.ends) {
    v1::WorkerEnds* message = to->add_ends();
    message->set_kind(ToProto(ends.kind));
    message->set_code(ends.code);
    message->set_first(ends.first);
    message->set_count(ends.count);
  }
}

NodeStopped Read(const v1::NodeStopped& from) {
  NodeStopped to{RoundId{from.round()}, from.worker_port(), {}};
  const int count = std::min(from.ends_size(), kLocalWorldSizeMax);
  for (int i = 0; i < count; ++i) {
    const v1::WorkerEnds& ends = from.ends(i);
    to.ends.push_back({FromProto(ends.kind()), ends.code(), ends.first(), ends.count()});
  }
  return to;
}

void Fill(const WorkerOutcomes& from, v1::WorkerOutcomes* to) {
  to->set_kind(ToProto(from.kind));
  to->set_code(from.code);
  to->set_count(from.count);
  for (const RankRange& range : from.ranges) {
    to->add_ranges(range.first);
    to->add_ranges(range.last);
  }
  for (const std::string& host : from.hosts) to->add_hosts(ToUtf8(host));
}

WorkerOutcomes Read(const v1::WorkerOutcomes& from) {
  WorkerOutcomes to;
  to.kind = FromProto(from.kind());
  to.code = from.code();
  to.count = from.count();
  const int bounds = std::min(from.ranges_size(), static_cast<int>(2 * kOutcomeRangesMax));
  for (int i = 0; i + 1 < bounds; i += 2) to.ranges.push_back({from.ranges(i), from.ranges(i + 1)});
  const int hosts = std::min(from.hosts_size(), static_cast<int>(kOutcomeHostsShown));
  for (int i = 0; i < hosts; ++i) to.hosts.push_back(Name(from.hosts(i)));
  return to;
}

void Fill(const Verdict& from, v1::Verdict* to) {
  to->set_success(from.success);
  if (from.cause) Fill(*from.cause, to->mutable_cause());
  to->set_exit_code(from.exit_code);
  to->set_round(ToNumber(from.round));
  to->set_restart_count(from.restart_count);
  to->set_restarts_max(from.restarts_max);
  to->set_world_size(from.world_size);
  to->set_node_count(from.node_count);
  to->set_restarts_forgiven(from.restarts_forgiven);
  to->set_not_restarted(ToUtf8(Cut(from.not_restarted, kFailureMessageBytesMax)));
  for (const WorkerOutcomes& victims : from.victims) Fill(victims, to->add_victims());
}

Verdict Read(const v1::Verdict& from) {
  Verdict to;
  to.success = from.success();
  if (from.has_cause()) to.cause = Read(from.cause());
  to.exit_code = from.exit_code();
  to.round = RoundId{from.round()};
  to.restart_count = from.restart_count();
  to.restarts_max = from.restarts_max();
  to.world_size = from.world_size();
  to.node_count = from.node_count();
  to.restarts_forgiven = from.restarts_forgiven();
  to.not_restarted = Lines(from.not_restarted(), kFailureMessageBytesMax);
  const int ways = std::min(from.victims_size(), static_cast<int>(kOutcomeWaysMax));
  for (int i = 0; i < ways; ++i) to.victims.push_back(Read(from.victims(i)));
  return to;
}

void Fill(const Join& from, v1::Join* to) {
  to->set_protocol_version(from.protocol_version);
  to->set_software_version(ToUtf8(from.software_version));
  to->set_run_id(ToUtf8(from.run_id));
  to->set_node_id(ToUtf8(from.node_id.value));
  to->set_host(ToUtf8(from.host));
  if (from.node_rank) to->set_node_rank(*from.node_rank);
  to->set_local_world_size(from.local_world_size);
  to->set_nodes_min(from.nodes_min);
  to->set_nodes_max(from.nodes_max);
  to->set_restarts_max(from.restarts_max);
  to->set_address(ToUtf8(from.address));
  to->set_worker_port(from.worker_port);
  SetDuration(from.join_timeout, to->mutable_join_timeout());
  SetDuration(from.last_call, to->mutable_last_call());
  SetDuration(from.lease, to->mutable_lease());
  to->set_resume(from.resume);
  SetDuration(from.stop_timeout, to->mutable_stop_timeout());
  *to->mutable_restart_policy() = ToProto(from.restart_policy);
  to->set_hosts_service(from.hosts_service);
  to->set_role(ToUtf8(from.role));
}

Join Read(const v1::Join& from) {
  Join to;
  to.protocol_version = from.protocol_version();
  to.software_version = Name(from.software_version());
  // Not cut: the rules refuse what is too long. One byte more than they allow is enough for that.
  to.run_id = Printable(Cut(from.run_id(), kNameBytesMax + 1));
  to.node_id.value = Printable(Cut(from.node_id(), kNameBytesMax + 1));
  to.host = Printable(Cut(from.host(), kNameBytesMax + 1));
  if (from.has_node_rank()) to.node_rank = from.node_rank();
  to.local_world_size = from.local_world_size();
  to.nodes_min = from.nodes_min();
  to.nodes_max = from.nodes_max();
  to.restarts_max = from.restarts_max();
  to.address = Printable(Cut(from.address(), kNameBytesMax + 1));
  to.worker_port = from.worker_port();
  to.join_timeout = ToMilliseconds(from.join_timeout());
  to.last_call = ToMilliseconds(from.last_call());
  to.lease = ToMilliseconds(from.lease());
  to.resume = from.resume();
  to.stop_timeout = ToMilliseconds(from.stop_timeout());
  to.restart_policy = ddprun::FromProto(from.restart_policy());
  to.hosts_service = from.hosts_service();
  to.role = Printable(Cut(from.role(), kNameBytesMax + 1));
  return to;
}

void Fill(const Start& from, v1::Start* to) {
  to->set_round(ToNumber(from.round));
  to->set_run_id(from.run_id);
  to->set_node_rank(from.node_rank);
  to->set_node_count(from.node_count);
  to->set_rank_first(from.rank_first);
  to->set_world_size(from.world_size);
  to->set_master_addr(from.master_addr);
  to->set_master_port(from.master_port);
  to->set_restart_count(from.restart_count);
  to->set_restarts_max(from.restarts_max);
  to->set_restarts_forgiven(from.restarts_forgiven);
  to->set_left_out(ToUtf8(Cut(from.left_out, kFailureMessageBytesMax)));
  to->set_role_rank_first(from.role_rank_first);
  to->set_role_world_size(from.role_world_size);
}

Start Read(const v1::Start& from) {
  Start to;
  to.round = RoundId{from.round()};
  to.run_id = Name(from.run_id());
  to.node_rank = from.node_rank();
  to.node_count = from.node_count();
  to.rank_first = from.rank_first();
  to.world_size = from.world_size();
  to.master_addr = Name(from.master_addr());
  to.master_port = from.master_port();
  to.restart_count = from.restart_count();
  to.restarts_max = from.restarts_max();
  to.restarts_forgiven = from.restarts_forgiven();
  to.left_out = Lines(from.left_out(), kFailureMessageBytesMax);
  to.role_rank_first = from.role_rank_first();
  to.role_world_size = from.role_world_size();
  return to;
}

absl::StatusCode CodeOf(int code) {
  const bool known = code > 0 && code <= static_cast<int>(absl::StatusCode::kUnauthenticated);
  return known ? static_cast<absl::StatusCode>(code) : absl::StatusCode::kUnknown;
}

}  // namespace

v1::Progress ToProto(const Progress& progress) {
  v1::Progress message;
  if (progress.step >= 0) message.set_step(progress.step);
  if (progress.epoch >= 0) message.set_epoch(progress.epoch);
  message.set_rate(progress.rate);
  message.set_rate_unit(ToUtf8(Cut(progress.rate_unit, kRateUnitBytesMax)));
  message.set_section(ToUtf8(Cut(progress.section, kSectionBytesMax)));
  return message;
}

Progress FromProto(const v1::Progress& message) {
  Progress progress;
  if (message.has_step()) progress.step = std::max<std::int64_t>(message.step(), -1);
  if (message.has_epoch()) progress.epoch = std::max<std::int64_t>(message.epoch(), -1);
  progress.rate = std::isfinite(message.rate()) ? std::clamp(message.rate(), 0.0, kRateMax) : 0;
  progress.rate_unit = Printable(Cut(message.rate_unit(), kRateUnitBytesMax));
  progress.section = Printable(Cut(message.section(), kSectionBytesMax));
  return progress;
}

v1::Report ToProto(const Report& report) {
  v1::Report message;
  std::visit(
      Overloaded{[&](const Join& join) { Fill(join, message.mutable_join()); },
                 [&](const WorkerFailed& failed) {
                   message.mutable_worker_failed()->set_round(ToNumber(failed.round));
                   Fill(failed.failure, message.mutable_worker_failed()->mutable_failure());
                 },
                 [&](const NodeSucceeded& succeeded) {
                   message.mutable_node_succeeded()->set_round(ToNumber(succeeded.round));
                 },
                 [&](const NodeStopped& stopped) { Fill(stopped, message.mutable_node_stopped()); },
                 [&](const Leave& leave) {
                   Fill(leave.reason, message.mutable_leave()->mutable_reason());
                   message.mutable_leave()->set_close_run(leave.close_run);
                   message.mutable_leave()->set_at_once(leave.at_once);
                 },
                 [&](const Heartbeat& heartbeat) { Fill(heartbeat, message.mutable_heartbeat()); },
                 [&](const LogLines& lines) { *message.mutable_log_lines() = ToProto(lines); }},
      report);
  return message;
}

absl::StatusOr<Report> FromProto(const v1::Report& message) {
  switch (message.kind_case()) {
    case v1::Report::kJoin:
      return Read(message.join());
    case v1::Report::kWorkerFailed:
      return WorkerFailed{RoundId{message.worker_failed().round()},
                          Read(message.worker_failed().failure())};
    case v1::Report::kNodeSucceeded:
      return NodeSucceeded{RoundId{message.node_succeeded().round()}};
    case v1::Report::kNodeStopped:
      return Read(message.node_stopped());
    case v1::Report::kLeave:
      return Leave{Read(message.leave().reason()), message.leave().close_run(),
                   message.leave().at_once()};
    case v1::Report::kHeartbeat:
      return Read(message.heartbeat());
    case v1::Report::kLogLines:
      return ddprun::FromProto(message.log_lines());
    case v1::Report::KIND_NOT_SET:
      break;
  }
  return absl::InvalidArgumentError(
      "a report of a kind that this version does not know; install the same ddprun on all nodes");
}

v1::Join ToProto(const Join& join) {
  v1::Join message;
  Fill(join, &message);
  return message;
}

Join FromProto(const v1::Join& message) { return Read(message); }

v1::Failure ToProto(const Failure& failure) {
  v1::Failure message;
  Fill(failure, &message);
  return message;
}

Failure FromProto(const v1::Failure& message) { return Read(message); }

v1::WorkerOutcomes ToProto(const WorkerOutcomes& victims) {
  v1::WorkerOutcomes message;
  Fill(victims, &message);
  return message;
}

WorkerOutcomes FromProto(const v1::WorkerOutcomes& message) { return Read(message); }

v1::Start ToProto(const Start& start) {
  v1::Start message;
  Fill(start, &message);
  return message;
}

Start FromProto(const v1::Start& message) { return Read(message); }

v1::Verdict ToProto(const Verdict& verdict) {
  v1::Verdict message;
  Fill(verdict, &message);
  return message;
}

Verdict FromProto(const v1::Verdict& message) { return Read(message); }

Verdict FromService(const v1::Verdict& message) {
  Verdict verdict = Read(message);
  const bool failed =
      !verdict.success && !(verdict.cause && verdict.cause->kind == FailureKind::kNodeDrained);
  verdict.exit_code = failed ? ClampExitCode(verdict.exit_code) : 0;
  return verdict;
}

v1::LossReport ToProto(const LossReport& report) {
  v1::LossReport message;
  message.set_protocol_version(report.protocol_version);
  message.set_run_id(ToUtf8(report.run_id));
  message.set_node_id(ToUtf8(report.node_id.value));
  message.set_reason(ToUtf8(Cut(report.reason, kLastLineBytesMax)));
  return message;
}

// Names as in Join, so that they mean the same run and node.
LossReport FromProto(const v1::LossReport& message) {
  LossReport report;
  report.protocol_version = message.protocol_version();
  report.run_id = Printable(Cut(message.run_id(), kNameBytesMax + 1));
  report.node_id.value = Printable(Cut(message.node_id(), kNameBytesMax + 1));
  report.reason = Printable(Cut(message.reason(), kLastLineBytesMax));
  return report;
}

v1::Directive ToProto(const Directive& directive) {
  v1::Directive message;
  std::visit(
      Overloaded{
          [&](const Accepted& accepted) {
            SetDuration(accepted.lease, message.mutable_accepted()->mutable_lease());
            SetDuration(accepted.heartbeat, message.mutable_accepted()->mutable_heartbeat());
            message.mutable_accepted()->set_durable(accepted.durable);
          },
          [&](const Waiting& waiting) {
            message.mutable_waiting()->set_reason(waiting.reason);
            SetDuration(waiting.remaining, message.mutable_waiting()->mutable_remaining());
          },
          [&](const Start& start) { Fill(start, message.mutable_start()); },
          [&](const Stop& stop) {
            message.mutable_stop()->set_round(ToNumber(stop.round));
            Fill(stop.cause, message.mutable_stop()->mutable_cause());
            message.mutable_stop()->set_last(stop.last);
          },
          [&](const Finish& finish) {
            Fill(finish.verdict, message.mutable_finish()->mutable_verdict());
          },
          [&](const Refused& refused) {
            message.mutable_refused()->set_code(static_cast<int>(refused.status.code()));
            message.mutable_refused()->set_message(ToUtf8(std::string(refused.status.message())));
            message.mutable_refused()->set_exit_code(refused.exit_code);
          },
          [&](const LogWatches& watches) { *message.mutable_log_watches() = ToProto(watches); },
          [&](const LogsTaken& taken) {
            message.mutable_logs_taken()->set_watch(taken.watch);
            message.mutable_logs_taken()->set_number(taken.number);
          }},
      directive);
  return message;
}

absl::StatusOr<Directive> FromProto(const v1::Directive& message) {
  switch (message.kind_case()) {
    case v1::Directive::kAccepted:
      return Accepted{ToMilliseconds(message.accepted().lease()),
                      ToMilliseconds(message.accepted().heartbeat()), message.accepted().durable()};
    case v1::Directive::kWaiting:
      return Waiting{Lines(message.waiting().reason(), kFailureMessageBytesMax),
                     ToMilliseconds(message.waiting().remaining())};
    case v1::Directive::kStart:
      return Read(message.start());
    case v1::Directive::kStop:
      return Stop{RoundId{message.stop().round()}, Read(message.stop().cause()),
                  message.stop().last()};
    case v1::Directive::kFinish:
      return Finish{FromService(message.finish().verdict())};
    case v1::Directive::kRefused:
      return Refused{
          absl::Status(CodeOf(message.refused().code()),
                       Lines(message.refused().message(), kFailureMessageBytesMax)),
          message.refused().exit_code() == 0 ? 0 : ClampExitCode(message.refused().exit_code())};
    case v1::Directive::kLogWatches:
      return ddprun::FromProto(message.log_watches());
    case v1::Directive::kLogsTaken:
      return LogsTaken{message.logs_taken().watch(), message.logs_taken().number()};
    case v1::Directive::KIND_NOT_SET:
      break;
  }
  return absl::InvalidArgumentError(
      "a directive of a kind that this version does not know; install the same ddprun on all "
      "nodes");
}

v1::StoreOp ToProto(StoreOp op) {
  v1::StoreOp message;
  message.set_verb(static_cast<v1::StoreOp::Verb>(op.verb));
  message.set_round(ToNumber(op.round));
  for (std::string& key : op.keys) *message.add_keys() = std::move(key);
  for (std::string& value : op.values) *message.add_values() = std::move(value);
  message.set_number(op.number);
  if (op.timeout.count() != 0) SetDuration(op.timeout, message.mutable_timeout());
  return message;
}

absl::StatusOr<StoreOp> FromProto(v1::StoreOp message) {
  if (message.verb() <= v1::StoreOp::VERB_UNSPECIFIED || message.verb() > v1::StoreOp::Verb_MAX) {
    return absl::InvalidArgumentError(absl::StrCat("store verb ", static_cast<int>(message.verb()),
                                                   " is not known to this version"));
  }
  StoreOp op;
  op.verb = static_cast<StoreVerb>(message.verb());
  op.round = RoundId{message.round()};
  op.keys.reserve(static_cast<std::size_t>(message.keys_size()));
  for (std::string& key : *message.mutable_keys()) op.keys.push_back(std::move(key));
  op.values.reserve(static_cast<std::size_t>(message.values_size()));
  for (std::string& value : *message.mutable_values()) op.values.push_back(std::move(value));
  op.number = message.number();
  op.timeout = ToMilliseconds(message.timeout());
  return op;
}

v1::StoreHello ToProto(const StoreHello& hello) {
  v1::StoreHello message;
  message.set_protocol_version(kProtocolVersion);
  message.set_run_id(hello.run_id);
  message.set_node_id(hello.node_id);
  message.set_stream(hello.stream);
  message.mutable_unanswered()->Add(hello.unanswered.begin(), hello.unanswered.end());
  return message;
}

StoreHello FromProto(const v1::StoreHello& message) {
  StoreHello hello;
  hello.run_id = message.run_id();
  hello.node_id = Cut(message.node_id(), kNameBytesMax);
  hello.stream = message.stream();
  hello.unanswered.assign(message.unanswered().begin(), message.unanswered().end());
  return hello;
}

void AddTo(v1::StoreRequests* message, StoreBatch batch) {
  for (StoreRequest& request : batch.requests) {
    v1::StoreRequest* to = message->add_requests();
    to->set_id(request.id);
    if (request.op) {
      *to->mutable_op() = ToProto(*std::move(request.op));
    } else {
      to->mutable_cancel();
    }
  }
  message->mutable_answered()->Add(batch.answered.begin(), batch.answered.end());
  message->set_forgotten(batch.forgotten);
}

StoreBatch FromProto(v1::StoreRequests message, std::vector<StoreReply>* refused) {
  StoreBatch batch;
  batch.requests.reserve(static_cast<std::size_t>(message.requests_size()));
  for (v1::StoreRequest& request : *message.mutable_requests()) {
    if (request.has_cancel()) {
      batch.requests.push_back({request.id(), std::nullopt});
      continue;
    }
    absl::StatusOr<StoreOp> op = absl::InvalidArgumentError(
        "a store request of a kind that this version does not know; install the same ddprun on all "
        "nodes");
    if (request.has_op()) op = FromProto(std::move(*request.mutable_op()));
    if (op.ok()) {
      batch.requests.push_back({request.id(), *std::move(op)});
    } else {
      StoreReply reply;
      reply.id = request.id();
      reply.result.status = op.status();
      refused->push_back(std::move(reply));
    }
  }
  batch.answered.assign(message.answered().begin(), message.answered().end());
  batch.forgotten = message.forgotten();
  return batch;
}

v1::StoreReply ToProto(StoreReply reply) {
  StoreResult& result = reply.result;
  v1::StoreReply message;
  message.set_id(reply.id);
  message.set_keep(reply.keep);
  message.set_forget(reply.forget);
  message.set_code(static_cast<int>(result.status.code()));
  if (!result.status.ok()) message.set_message(ToUtf8(std::string(result.status.message())));
  for (std::string& value : result.values) *message.add_values() = std::move(value);
  message.set_number(result.number);
  for (std::string& key : result.keys) *message.add_keys() = std::move(key);
  return message;
}

StoreReply FromProto(v1::StoreReply message) {
  StoreReply reply;
  reply.id = message.id();
  reply.keep = message.keep();
  reply.forget = message.forget();
  StoreResult& result = reply.result;
  if (message.code() != 0) result.status = absl::Status(CodeOf(message.code()), message.message());
  result.values.reserve(static_cast<std::size_t>(message.values_size()));
  for (std::string& value : *message.mutable_values()) result.values.push_back(std::move(value));
  result.number = message.number();
  result.keys.reserve(static_cast<std::size_t>(message.keys_size()));
  for (std::string& key : *message.mutable_keys()) result.keys.push_back(std::move(key));
  return reply;
}

std::vector<StoreReply> FromProto(v1::StoreReplies message) {
  std::vector<StoreReply> replies;
  replies.reserve(static_cast<std::size_t>(message.replies_size()));
  for (v1::StoreReply& reply : *message.mutable_replies()) {
    replies.push_back(FromProto(std::move(reply)));
  }
  return replies;
}

}  // namespace ddprun
