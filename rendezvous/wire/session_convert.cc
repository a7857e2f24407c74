// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/wire/session_convert.h"

#include <cmath>
#include <limits>

#include "proto/failure_record.h"
#include "rendezvous/base/limits.h"
#include "rendezvous/wire/failure_convert.h"
#include "rendezvous/wire/fields.h"

namespace ddprun {
namespace {

// One byte more than allowed is kept: the rules then reject the name instead of a cut one passing.
constexpr std::size_t kJoinNameBytes = kNameBytesMax + 1;

// Of a number that a worker has reported.
double RateFrom(double reported) {
  return std::isfinite(reported) ? std::clamp(reported, 0.0, kRateMax) : 0;
}

}  // namespace

// ---- Reports

DDPRUN_MESSAGE(ExitCodeRange) {
  FIELD(first);
  FIELD(last);
}

// Values out of range are kept, and one range of codes more than allowed: the rules reject them.
DDPRUN_MESSAGE(RestartPolicy) {
  FIELD(window);
  FIELD(reset);
  FIELD(no_progress_max);
  LIST(never_codes, kExitCodeRangesMax + 1);
  LIST(only_codes, kExitCodeRangesMax + 1);
  FIELD(node_failures_max);
  FIELD(node_cooldown);
  FIELD(delay);
  FIELD(delay_max);
  FIELD(on_join);
}

DDPRUN_MESSAGE(RoleWorkers) {
  TEXT(name, kJoinNameBytes);
  FIELD(workers);
  FIELD(worker_port);
}

DDPRUN_MESSAGE(RoleRanks) {
  FIELD(rank_first);
  FIELD(world_size);
  FIELD(node_rank);
  FIELD(node_count);
  TEXT(master_addr, kNameBytesMax);
  FIELD(master_port);
}

DDPRUN_MESSAGE(Join) {
  FIELD(protocol_version);
  TEXT(software_version, kNameBytesMax);
  TEXT(run_id, kJoinNameBytes);
  TEXT_AS(value.node_id.value, node_id, kJoinNameBytes);
  TEXT(host, kJoinNameBytes);
  FIELD(node_rank);
  FIELD(local_world_size);
  FIELD(nodes_min);
  FIELD(nodes_max);
  FIELD(restarts_max);
  TEXT(address, kJoinNameBytes);
  FIELD(worker_port);
  FIELD(join_timeout);
  FIELD(last_call);
  FIELD(lease);
  FIELD(resume);
  FIELD(stop_timeout);
  FIELD(restart_policy);
  FIELD(hosts_service);
  TEXT(role, kJoinNameBytes);
  FIELD(evict_stragglers);
  TEXTS(addresses, kNodeAddressesMax, kNameBytesMax);
  FIELD(hears_preemption);
  LIST(roles, kLocalWorldSizeMax + 1);
  FIELD(ranks_by_role);
  FIELD(rank_order);
  TEXT(topology, kJoinNameBytes);
  TEXT(traceparent, kJoinNameBytes);
}

// Names as in Join, so that they mean the same run and node.
DDPRUN_MESSAGE(LossReport) {
  FIELD(protocol_version);
  TEXT(run_id, kJoinNameBytes);
  TEXT_AS(value.node_id.value, node_id, kJoinNameBytes);
  TEXT(reason, kLastLineBytesMax);
}

DDPRUN_MESSAGE(Progress) {
  COUNT(step);
  COUNT(epoch);
  FIELD(rate);
  TEXT(rate_unit, kRateUnitBytesMax);
  TEXT(section, kSectionBytesMax);
  COUNT(slow_rank);
  FIELD(slowness);
  COUNT(damages);
  COUNT(damaged_rank);
  FIELD(accuracy);
  if constexpr (LOADING) {
    if (value.accuracy && !(*value.accuracy >= 0 && *value.accuracy <= 1)) value.accuracy.reset();
    value.slowness = RateFrom(value.slowness);
    value.rate = RateFrom(value.rate);
  }
}

DDPRUN_MESSAGE(RankReport) {
  COUNT(step);
  FIELD(rate);
  FIELD(loss);
  TEXT(section, kSectionBytesMax);
  FIELD(memory);
  FIELD(gpu_memory);
  FIELD(slowness);
  FIELD(hung);
  FIELD(ended);
  if constexpr (LOADING) {
    value.rate = RateFrom(value.rate);
    value.slowness = RateFrom(value.slowness);
    if (value.loss && !std::isfinite(*value.loss))
      value.loss = std::numeric_limits<double>::infinity();
  }
}

DDPRUN_MESSAGE(Heartbeat) {
  FIELD(time);
  FIELD_AS(value.progress_round, round);
  if (value.progress_round == kNoRound) return;
  FIELD(progress);
  LIST(still, kCollectivePlacesMax);
  LIST(ranks, kLocalWorldSizeMax);
}

DDPRUN_MESSAGE(WorkerFailed) {
  FIELD(round);
  FIELD(failure);
}

DDPRUN_MESSAGE(CanBeKept) {
  FIELD(round);
  FIELD(all);
}

DDPRUN_MESSAGE(NodeSucceeded) {
  FIELD(round);
  FIELD(time);
}

DDPRUN_MESSAGE(WorkerEnds) {
  FIELD(kind);
  FIELD(code);
  FIELD(first);
  FIELD(count);
}

DDPRUN_MESSAGE(NodeStopped) {
  FIELD(round);
  FIELD(worker_port);
  LIST(ends, kLocalWorldSizeMax);
  FIELD(time);
  LIST(places, kCollectivePlacesMax);
  LIST(role_ports, kLocalWorldSizeMax);
}

DDPRUN_MESSAGE(Leave) {
  FIELD(reason);
  FIELD(close_run);
  FIELD(at_once);
}

// A line may have any bytes.
DDPRUN_MESSAGE(LogLine) {
  FIELD(rank);
  FIELD(round);
  FIELD(is_stderr);
  FIELD(prefix);
  FIELD(text);
}

DDPRUN_MESSAGE(LogLines) {
  FIELD(watch);
  FIELD(number);
  FIELD(left_out);
  FIELD(lines);
  FIELD(tail_end);
}

DDPRUN_MESSAGE(FaultReport) {
  FIELD(id);
  FIELD(done);
  TEXT(words, kFailureMessageBytesMax);
  COUNT(step);
  COUNT(epoch);
  TEXTS(stack, kStackLinesMax, kStackLineBytesMax);
}

DDPRUN_MESSAGE(PreemptionReport) {
  FIELD(remaining);
  TEXT(reason, kNameBytesMax);
  FIELD(withdrawn);
  FIELD(saved);
}

DDPRUN_MESSAGE(TcpConnection) {
  TEXT(client_address, kNameBytesMax);
  FIELD(client_port);
  TEXT(server_address, kNameBytesMax);
  FIELD(server_port);
}

DDPRUN_MESSAGE(OwnerQuery) {
  FIELD(id);
  FIELD(connection);
  FIELD(from_seen_address);
}

DDPRUN_MESSAGE(OwnerQueries) { LIST(queries, kAdmissionsMax); }

DDPRUN_MESSAGE(OwnerAnswer) {
  FIELD(id);
  FIELD(ownership);
  FIELD(user);
  TEXT(host, kNameBytesMax);
}

DDPRUN_MESSAGE(OwnerAnswers) { LIST(answers, kAdmissionsMax); }

DDPRUN_FIELDS(Report) {
  KIND(Join, join);
  KIND(WorkerFailed, worker_failed);
  KIND(NodeSucceeded, node_succeeded);
  KIND(NodeStopped, node_stopped);
  KIND(Leave, leave);
  KIND(Heartbeat, heartbeat);
  KIND(LogLines, log_lines);
  KIND(CanBeKept, can_be_kept);
  KIND(FaultReport, fault_report);
  KIND(PreemptionReport, preemption_report);
  KIND(OwnerQueries, owner_queries);
  KIND(OwnerAnswers, owner_answers);
}

v1::Report ToProto(const Report& report) {
  v1::Report message;
  Fields(fields::ToMessage{}, report, message);
  return message;
}

absl::StatusOr<Report> FromProto(const v1::Report& message) {
  if (message.kind_case() == v1::Report::KIND_NOT_SET) {
    return absl::InvalidArgumentError(
        "a report of a kind that this version does not know; install the same ddprun on all nodes");
  }
  Report report;
  Fields(fields::ToValue{}, report, message);
  return report;
}

// ---- Directives

DDPRUN_MESSAGE(Accepted) {
  FIELD(lease);
  FIELD(heartbeat);
  FIELD(durable);
  FIELD(takes_preemption);
  FIELD(plans_preemption);
}

DDPRUN_MESSAGE(Waiting) {
  LINES(reason, kFailureMessageBytesMax);
  FIELD(remaining);
}

DDPRUN_MESSAGE(StandBy) {}

DDPRUN_MESSAGE(Start) {
  FIELD(round);
  TEXT(run_id, kNameBytesMax);
  FIELD(node_rank);
  FIELD(node_count);
  FIELD(rank_first);
  FIELD(world_size);
  TEXT(master_addr, kNameBytesMax);
  FIELD(master_port);
  FIELD(restart_count);
  FIELD(restarts_max);
  FIELD(restarts_forgiven);
  LINES(left_out, kFailureMessageBytesMax);
  FIELD(role_rank_first);
  FIELD(role_world_size);
  LIST(roles, kLocalWorldSizeMax);
  TEXT(traceparent, kNameBytesMax);
}

DDPRUN_MESSAGE(Stop) {
  FIELD(round);
  FIELD(cause);
  FIELD(last);
}

DDPRUN_MESSAGE(Finish) {
  FIELD(verdict);
  if constexpr (LOADING) value.verdict = FromService(message.verdict());
}

v1::Refused ToProto(const Refused& refused) {
  v1::Refused message;
  message.set_code(static_cast<int>(refused.status.code()));
  message.set_message(ToUtf8(std::string(refused.status.message())));
  message.set_exit_code(refused.exit_code);
  return message;
}

Refused FromProto(const v1::Refused& message) {
  return {absl::Status(StatusCodeOf(message.code()),
                       fields::CutPrintableLines(message.message(), kFailureMessageBytesMax)),
          message.exit_code() == 0 ? 0 : ClampExitCode(message.exit_code())};
}

DDPRUN_MESSAGE(LogWatch) {
  FIELD(id);
  FIELD(lines);
  FIELD(follow);
  RANGES(value.ranks, ranks, kWatchNamesMax);
  FIELD(without_stdout);
  FIELD(without_stderr);
  FIELD(resumed);
  FIELD(received);
  if constexpr (LOADING) value.lines = std::clamp(value.lines, 0, kWatchLinesMax);
}

DDPRUN_MESSAGE(LogWatches) { LIST(watches, kWatchesMax); }

DDPRUN_MESSAGE(LogsTaken) {
  FIELD(watch);
  FIELD(number);
}

DDPRUN_MESSAGE(Fault) {
  FIELD(id);
  FIELD(kind);
  FIELD(local_rank);
  FIELD(duration);
  TEXT(by, kNameBytesMax);
}

DDPRUN_MESSAGE(Preemption) {
  FIELD(number);
  FIELD(remaining);
  TEXT(host, kNameBytesMax);
  FIELD(node_rank);
  TEXT(reason, kNameBytesMax);
}

DDPRUN_MESSAGE(ConnectionRefused) {
  FIELD(connection);
  FIELD(user);
}

DDPRUN_FIELDS(Directive) {
  KIND(Accepted, accepted);
  KIND(Waiting, waiting);
  KIND(StandBy, stand_by);
  KIND(Start, start);
  KIND(Stop, stop);
  KIND(Finish, finish);
  KIND(Refused, refused);
  KIND(LogWatches, log_watches);
  KIND(LogsTaken, logs_taken);
  KIND(Fault, fault);
  KIND(Preemption, preemption);
  KIND(OwnerQueries, owner_queries);
  KIND(OwnerAnswers, owner_answers);
  KIND(ConnectionRefused, connection_refused);
}

v1::Directive ToProto(const Directive& directive) {
  v1::Directive message;
  Fields(fields::ToMessage{}, directive, message);
  return message;
}

absl::StatusOr<Directive> FromProto(const v1::Directive& message) {
  if (message.kind_case() == v1::Directive::KIND_NOT_SET) {
    return absl::InvalidArgumentError(
        "a directive of a kind that this version does not know; install the same ddprun on all "
        "nodes");
  }
  Directive directive;
  Fields(fields::ToValue{}, directive, message);
  return directive;
}

}  // namespace ddprun
