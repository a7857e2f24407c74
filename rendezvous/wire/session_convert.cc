// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/wire/session_convert.h"

#include <cmath>

#include "proto/failure_record.h"
#include "rendezvous/base/limits.h"
#include "rendezvous/base/peer_limits.h"
#include "rendezvous/wire/failure_convert.h"
#include "rendezvous/wire/fields.h"

namespace ddprun {
namespace {

// One byte more than allowed is kept: the rules then reject the name instead of a cut one passing.
constexpr std::size_t kJoinNameBytes = kNameBytesMax + 1;

}  // namespace

// ---- Reports

DDPRUN_FIELDS(ExitCodeRange){FIELD(first) FIELD(last)} DDPRUN_CONVERSION(ExitCodeRange,
                                                                         v1::ExitCodeRange)

    // Values out of range are kept, and one range of codes more than allowed: the rules reject
    // them.
    DDPRUN_FIELDS(RestartPolicy){
        FIELD(window) FIELD(reset) FIELD(no_progress_max) LIST(never_codes, kExitCodeRangesMax + 1)
            LIST(only_codes, kExitCodeRangesMax + 1) FIELD(node_failures_max) FIELD(node_cooldown)
                FIELD(delay) FIELD(delay_max)} DDPRUN_CONVERSION(RestartPolicy, v1::RestartPolicy)

        DDPRUN_FIELDS(Join){
            FIELD(protocol_version) TEXT(software_version, kNameBytesMax)
                TEXT(run_id, kJoinNameBytes) TEXT_AS(value.node_id.value, node_id,
                                                     kJoinNameBytes) TEXT(host, kJoinNameBytes)
                    FIELD(node_rank) FIELD(local_world_size) FIELD(nodes_min) FIELD(nodes_max)
                        FIELD(restarts_max) TEXT(address, kJoinNameBytes) FIELD(worker_port)
                            FIELD(join_timeout) FIELD(last_call) FIELD(lease) FIELD(resume)
                                FIELD(stop_timeout) FIELD(restart_policy) FIELD(hosts_service)
                                    TEXT(role, kJoinNameBytes)} DDPRUN_CONVERSION(Join, v1::Join)

    // Names as in Join, so that they mean the same run and node.
    DDPRUN_FIELDS(LossReport){
        FIELD(protocol_version) TEXT(run_id, kJoinNameBytes)
            TEXT_AS(value.node_id.value, node_id, kJoinNameBytes)
                TEXT(reason, kLastLineBytesMax)} DDPRUN_CONVERSION(LossReport, v1::LossReport)

        DDPRUN_FIELDS(Progress) {
  COUNT(step)
  COUNT(epoch)
  FIELD(rate)
  TEXT(rate_unit, kRateUnitBytesMax)
  TEXT(section, kSectionBytesMax)
  if constexpr (LOADING) {
    value.rate = std::isfinite(value.rate) ? std::clamp(value.rate, 0.0, kRateMax) : 0;
  }
}
DDPRUN_CONVERSION(Progress, v1::Progress)

DDPRUN_FIELDS(Heartbeat) {
  FIELD_AS(value.progress_round, round)
  if (value.progress_round == kNoRound) return;
  FIELD(progress)
}
DDPRUN_CONVERSION(Heartbeat, v1::Heartbeat)

DDPRUN_FIELDS(WorkerFailed){FIELD(round) FIELD(failure)} DDPRUN_CONVERSION(WorkerFailed,
                                                                           v1::WorkerFailed)

    DDPRUN_FIELDS(NodeSucceeded){FIELD(round)} DDPRUN_CONVERSION(NodeSucceeded, v1::NodeSucceeded)

        DDPRUN_FIELDS(WorkerEnds){FIELD(kind) FIELD(code) FIELD(first)
                                      FIELD(count)} DDPRUN_CONVERSION(WorkerEnds, v1::WorkerEnds)

            DDPRUN_FIELDS(NodeStopped){
                FIELD(round) FIELD(worker_port)
                    LIST(ends, kLocalWorldSizeMax)} DDPRUN_CONVERSION(NodeStopped, v1::NodeStopped)

                DDPRUN_FIELDS(Leave){FIELD(reason) FIELD(close_run)
                                         FIELD(at_once)} DDPRUN_CONVERSION(Leave, v1::Leave)

    // A line may have any bytes.
    DDPRUN_FIELDS(LogLine){FIELD(rank) FIELD(round) FIELD(is_stderr) FIELD(prefix)
                               FIELD(text)} DDPRUN_CONVERSION(LogLine, v1::LogLine)

        DDPRUN_FIELDS(LogLines){FIELD(watch) FIELD(number) FIELD(left_out) FIELD(lines)
                                    FIELD(tail_end)} DDPRUN_CONVERSION(LogLines, v1::LogLines)

            DDPRUN_FIELDS(Report){KIND(Join, join) KIND(WorkerFailed, worker_failed)
                                      KIND(NodeSucceeded, node_succeeded)
                                          KIND(NodeStopped, node_stopped) KIND(Leave, leave)
                                              KIND(Heartbeat, heartbeat) KIND(LogLines, log_lines)}

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

DDPRUN_FIELDS(Accepted){FIELD(lease) FIELD(heartbeat)
                            FIELD(durable)} DDPRUN_CONVERSION(Accepted, v1::Accepted)

    DDPRUN_FIELDS(Waiting){LINES(reason, kFailureMessageBytesMax)
                               FIELD(remaining)} DDPRUN_CONVERSION(Waiting, v1::Waiting)

        DDPRUN_FIELDS(Start){
            FIELD(round) TEXT(run_id, kNameBytesMax) FIELD(node_rank) FIELD(node_count)
                FIELD(rank_first) FIELD(world_size) TEXT(master_addr, kNameBytesMax)
                    FIELD(master_port) FIELD(restart_count) FIELD(restarts_max)
                        FIELD(restarts_forgiven) LINES(left_out, kFailureMessageBytesMax)
                            FIELD(role_rank_first)
                                FIELD(role_world_size)} DDPRUN_CONVERSION(Start, v1::Start)

            DDPRUN_FIELDS(Stop){FIELD(round) FIELD(cause) FIELD(last)} DDPRUN_CONVERSION(Stop,
                                                                                         v1::Stop)

                v1::Finish ToProto(const Finish& finish) {
  v1::Finish message;
  *message.mutable_verdict() = ToProto(finish.verdict);
  return message;
}
Finish FromProto(const v1::Finish& message) { return {FromService(message.verdict())}; }

v1::Refused ToProto(const Refused& refused) {
  v1::Refused message;
  message.set_code(static_cast<int>(refused.status.code()));
  message.set_message(ToUtf8(std::string(refused.status.message())));
  message.set_exit_code(refused.exit_code);
  return message;
}
Refused FromProto(const v1::Refused& message) {
  return {absl::Status(StatusCodeOf(message.code()),
                       PrintableLines(message.message(), kFailureMessageBytesMax)),
          message.exit_code() == 0 ? 0 : ClampExitCode(message.exit_code())};
}

DDPRUN_FIELDS(LogWatch) {
  FIELD(id)
  FIELD(lines)
  FIELD(follow)
  RANGES(value.ranks, ranks, kWatchNamesMax)
  FIELD(without_stdout)
  FIELD(without_stderr)
  FIELD(resumed)
  FIELD(received)
  if constexpr (LOADING) value.lines = std::clamp(value.lines, 0, kWatchLinesMax);
}
DDPRUN_CONVERSION(LogWatch, v1::LogWatch)

DDPRUN_FIELDS(LogWatches){LIST(watches, kWatchesMax)} DDPRUN_CONVERSION(LogWatches, v1::LogWatches)

    DDPRUN_FIELDS(LogsTaken){FIELD(watch) FIELD(number)} DDPRUN_CONVERSION(LogsTaken, v1::LogsTaken)

        DDPRUN_FIELDS(Directive){KIND(Accepted, accepted) KIND(Waiting, waiting) KIND(Start, start)
                                     KIND(Stop, stop) KIND(Finish, finish) KIND(Refused, refused)
                                         KIND(LogWatches, log_watches) KIND(LogsTaken, logs_taken)}

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
