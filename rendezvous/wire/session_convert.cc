// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/wire/session_convert.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "proto/failure_record.h"
#include "proto/text.h"
#include "rendezvous/base/limits.h"
#include "rendezvous/base/overloaded.h"
#include "rendezvous/base/peer_limits.h"
#include "rendezvous/base/printable.h"
#include "rendezvous/wire/failure_convert.h"
#include "rendezvous/wire/log_convert.h"
#include "rendezvous/wire/scalars.h"

namespace ddprun {
namespace {

v1::Heartbeat ToProto(const Heartbeat& from) {
  v1::Heartbeat to;
  if (from.progress_round == kNoRound) return to;
  to.set_round(ToNumber(from.progress_round));
  *to.mutable_progress() = ddprun::ToProto(from.progress);
  return to;
}

Heartbeat FromProto(const v1::Heartbeat& from) {
  Heartbeat to;
  if (from.round() == 0) return to;
  to.progress_round = RoundId{from.round()};
  to.progress = ddprun::FromProto(from.progress());
  return to;
}

v1::NodeStopped ToProto(const NodeStopped& from) {
  v1::NodeStopped to;
  to.set_round(ToNumber(from.round));
  to.set_worker_port(from.worker_port);
  for (const WorkerEnds& ends : from.ends) {
    v1::WorkerEnds* message = to.add_ends();
    message->set_kind(ddprun::ToProto(ends.kind));
    message->set_code(ends.code);
    message->set_first(ends.first);
    message->set_count(ends.count);
  }
  return to;
}

NodeStopped FromProto(const v1::NodeStopped& from) {
  NodeStopped to{RoundId{from.round()}, from.worker_port(), {}};
  const int count = std::min(from.ends_size(), kLocalWorldSizeMax);
  for (int i = 0; i < count; ++i) {
    const v1::WorkerEnds& ends = from.ends(i);
    to.ends.push_back({ddprun::FromProto(ends.kind()), ends.code(), ends.first(), ends.count()});
  }
  return to;
}

// Reads one more than the rules allow, which is enough for them to reject it.
std::vector<ExitCodeRange> ReadCodes(
    const google::protobuf::RepeatedPtrField<v1::ExitCodeRange>& ranges) {
  std::vector<ExitCodeRange> codes;
  const int count = std::min(ranges.size(), static_cast<int>(kExitCodeRangesMax) + 1);
  for (int i = 0; i < count; ++i) codes.push_back({ranges[i].first(), ranges[i].last()});
  return codes;
}

void AddCodes(const std::vector<ExitCodeRange>& codes,
              google::protobuf::RepeatedPtrField<v1::ExitCodeRange>* ranges) {
  for (const ExitCodeRange& code : codes) {
    v1::ExitCodeRange* range = ranges->Add();
    range->set_first(code.first);
    range->set_last(code.last);
  }
}

}  // namespace

v1::Progress ToProto(const Progress& progress) {
  v1::Progress message;
  if (progress.step >= 0) message.set_step(progress.step);
  if (progress.epoch >= 0) message.set_epoch(progress.epoch);
  message.set_rate(progress.rate);
  message.set_rate_unit(ToUtf8(CutText(progress.rate_unit, kRateUnitBytesMax)));
  message.set_section(ToUtf8(CutText(progress.section, kSectionBytesMax)));
  return message;
}

Progress FromProto(const v1::Progress& message) {
  Progress progress;
  if (message.has_step()) progress.step = std::max<std::int64_t>(message.step(), -1);
  if (message.has_epoch()) progress.epoch = std::max<std::int64_t>(message.epoch(), -1);
  progress.rate = std::isfinite(message.rate()) ? std::clamp(message.rate(), 0.0, kRateMax) : 0;
  progress.rate_unit = Printable(CutText(message.rate_unit(), kRateUnitBytesMax));
  progress.section = Printable(CutText(message.section(), kSectionBytesMax));
  return progress;
}

v1::RestartPolicy ToProto(const RestartPolicy& policy) {
  v1::RestartPolicy message;
  *message.mutable_window() = ToDuration(policy.window);
  *message.mutable_reset() = ToDuration(policy.reset);
  message.set_no_progress_max(policy.no_progress_max);
  AddCodes(policy.never_codes, message.mutable_never_codes());
  AddCodes(policy.only_codes, message.mutable_only_codes());
  message.set_node_failures_max(policy.node_failures_max);
  *message.mutable_node_cooldown() = ToDuration(policy.node_cooldown);
  *message.mutable_delay() = ToDuration(policy.delay);
  *message.mutable_delay_max() = ToDuration(policy.delay_max);
  return message;
}

RestartPolicy FromProto(const v1::RestartPolicy& message) {
  return {.window = ToMilliseconds(message.window()),
          .reset = ToMilliseconds(message.reset()),
          .no_progress_max = message.no_progress_max(),
          .never_codes = ReadCodes(message.never_codes()),
          .only_codes = ReadCodes(message.only_codes()),
          .node_failures_max = message.node_failures_max(),
          .node_cooldown = ToMilliseconds(message.node_cooldown()),
          .delay = ToMilliseconds(message.delay()),
          .delay_max = ToMilliseconds(message.delay_max())};
}

v1::Join ToProto(const Join& from) {
  v1::Join to;
  to.set_protocol_version(from.protocol_version);
  to.set_software_version(ToUtf8(from.software_version));
  to.set_run_id(ToUtf8(from.run_id));
  to.set_node_id(ToUtf8(from.node_id.value));
  to.set_host(ToUtf8(from.host));
  if (from.node_rank) to.set_node_rank(*from.node_rank);
  to.set_local_world_size(from.local_world_size);
  to.set_nodes_min(from.nodes_min);
  to.set_nodes_max(from.nodes_max);
  to.set_restarts_max(from.restarts_max);
  to.set_address(ToUtf8(from.address));
  to.set_worker_port(from.worker_port);
  *to.mutable_join_timeout() = ToDuration(from.join_timeout);
  *to.mutable_last_call() = ToDuration(from.last_call);
  *to.mutable_lease() = ToDuration(from.lease);
  to.set_resume(from.resume);
  *to.mutable_stop_timeout() = ToDuration(from.stop_timeout);
  *to.mutable_restart_policy() = ToProto(from.restart_policy);
  to.set_hosts_service(from.hosts_service);
  to.set_role(ToUtf8(from.role));
  return to;
}

Join FromProto(const v1::Join& from) {
  Join to;
  to.protocol_version = from.protocol_version();
  to.software_version = PrintableName(from.software_version());
  // One byte more than allowed is kept: the rules then reject the name instead of a cut one
  // passing.
  to.run_id = Printable(CutText(from.run_id(), kNameBytesMax + 1));
  to.node_id.value = Printable(CutText(from.node_id(), kNameBytesMax + 1));
  to.host = Printable(CutText(from.host(), kNameBytesMax + 1));
  if (from.has_node_rank()) to.node_rank = from.node_rank();
  to.local_world_size = from.local_world_size();
  to.nodes_min = from.nodes_min();
  to.nodes_max = from.nodes_max();
  to.restarts_max = from.restarts_max();
  to.address = Printable(CutText(from.address(), kNameBytesMax + 1));
  to.worker_port = from.worker_port();
  to.join_timeout = ToMilliseconds(from.join_timeout());
  to.last_call = ToMilliseconds(from.last_call());
  to.lease = ToMilliseconds(from.lease());
  to.resume = from.resume();
  to.stop_timeout = ToMilliseconds(from.stop_timeout());
  to.restart_policy = ddprun::FromProto(from.restart_policy());
  to.hosts_service = from.hosts_service();
  to.role = Printable(CutText(from.role(), kNameBytesMax + 1));
  return to;
}

v1::Start ToProto(const Start& from) {
  v1::Start to;
  to.set_round(ToNumber(from.round));
  to.set_run_id(from.run_id);
  to.set_node_rank(from.node_rank);
  to.set_node_count(from.node_count);
  to.set_rank_first(from.rank_first);
  to.set_world_size(from.world_size);
  to.set_master_addr(from.master_addr);
  to.set_master_port(from.master_port);
  to.set_restart_count(from.restart_count);
  to.set_restarts_max(from.restarts_max);
  to.set_restarts_forgiven(from.restarts_forgiven);
  to.set_left_out(ToUtf8(CutText(from.left_out, kFailureMessageBytesMax)));
  to.set_role_rank_first(from.role_rank_first);
  to.set_role_world_size(from.role_world_size);
  return to;
}

Start FromProto(const v1::Start& from) {
  Start to;
  to.round = RoundId{from.round()};
  to.run_id = PrintableName(from.run_id());
  to.node_rank = from.node_rank();
  to.node_count = from.node_count();
  to.rank_first = from.rank_first();
  to.world_size = from.world_size();
  to.master_addr = PrintableName(from.master_addr());
  to.master_port = from.master_port();
  to.restart_count = from.restart_count();
  to.restarts_max = from.restarts_max();
  to.restarts_forgiven = from.restarts_forgiven();
  to.left_out = PrintableLines(from.left_out(), kFailureMessageBytesMax);
  to.role_rank_first = from.role_rank_first();
  to.role_world_size = from.role_world_size();
  return to;
}

v1::Report ToProto(const Report& report) {
  v1::Report message;
  std::visit(
      Overloaded{
          [&](const Join& join) { *message.mutable_join() = ToProto(join); },
          [&](const WorkerFailed& failed) {
            message.mutable_worker_failed()->set_round(ToNumber(failed.round));
            *message.mutable_worker_failed()->mutable_failure() = ToProto(failed.failure);
          },
          [&](const NodeSucceeded& succeeded) {
            message.mutable_node_succeeded()->set_round(ToNumber(succeeded.round));
          },
          [&](const NodeStopped& stopped) { *message.mutable_node_stopped() = ToProto(stopped); },
          [&](const Leave& leave) {
            *message.mutable_leave()->mutable_reason() = ToProto(leave.reason);
            message.mutable_leave()->set_close_run(leave.close_run);
            message.mutable_leave()->set_at_once(leave.at_once);
          },
          [&](const Heartbeat& heartbeat) { *message.mutable_heartbeat() = ToProto(heartbeat); },
          [&](const LogLines& lines) { *message.mutable_log_lines() = ToProto(lines); }},
      report);
  return message;
}

absl::StatusOr<Report> FromProto(const v1::Report& message) {
  switch (message.kind_case()) {
    case v1::Report::kJoin:
      return FromProto(message.join());
    case v1::Report::kWorkerFailed:
      return WorkerFailed{RoundId{message.worker_failed().round()},
                          FromProto(message.worker_failed().failure())};
    case v1::Report::kNodeSucceeded:
      return NodeSucceeded{RoundId{message.node_succeeded().round()}};
    case v1::Report::kNodeStopped:
      return FromProto(message.node_stopped());
    case v1::Report::kLeave:
      return Leave{FromProto(message.leave().reason()), message.leave().close_run(),
                   message.leave().at_once()};
    case v1::Report::kHeartbeat:
      return FromProto(message.heartbeat());
    case v1::Report::kLogLines:
      return ddprun::FromProto(message.log_lines());
    case v1::Report::KIND_NOT_SET:
      break;
  }
  return absl::InvalidArgumentError(
      "a report of a kind that this version does not know; install the same ddprun on all nodes");
}

v1::Directive ToProto(const Directive& directive) {
  v1::Directive message;
  std::visit(
      Overloaded{
          [&](const Accepted& accepted) {
            *message.mutable_accepted()->mutable_lease() = ToDuration(accepted.lease);
            *message.mutable_accepted()->mutable_heartbeat() = ToDuration(accepted.heartbeat);
            message.mutable_accepted()->set_durable(accepted.durable);
          },
          [&](const Waiting& waiting) {
            message.mutable_waiting()->set_reason(waiting.reason);
            *message.mutable_waiting()->mutable_remaining() = ToDuration(waiting.remaining);
          },
          [&](const Start& start) { *message.mutable_start() = ToProto(start); },
          [&](const Stop& stop) {
            message.mutable_stop()->set_round(ToNumber(stop.round));
            *message.mutable_stop()->mutable_cause() = ToProto(stop.cause);
            message.mutable_stop()->set_last(stop.last);
          },
          [&](const Finish& finish) {
            *message.mutable_finish()->mutable_verdict() = ToProto(finish.verdict);
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
      return Waiting{PrintableLines(message.waiting().reason(), kFailureMessageBytesMax),
                     ToMilliseconds(message.waiting().remaining())};
    case v1::Directive::kStart:
      return FromProto(message.start());
    case v1::Directive::kStop:
      return Stop{RoundId{message.stop().round()}, FromProto(message.stop().cause()),
                  message.stop().last()};
    case v1::Directive::kFinish:
      return Finish{FromService(message.finish().verdict())};
    case v1::Directive::kRefused:
      return Refused{
          absl::Status(StatusCodeOf(message.refused().code()),
                       PrintableLines(message.refused().message(), kFailureMessageBytesMax)),
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

v1::LossReport ToProto(const LossReport& report) {
  v1::LossReport message;
  message.set_protocol_version(report.protocol_version);
  message.set_run_id(ToUtf8(report.run_id));
  message.set_node_id(ToUtf8(report.node_id.value));
  message.set_reason(ToUtf8(CutText(report.reason, kLastLineBytesMax)));
  return message;
}

// Names as in Join, so that they mean the same run and node.
LossReport FromProto(const v1::LossReport& message) {
  LossReport report;
  report.protocol_version = message.protocol_version();
  report.run_id = Printable(CutText(message.run_id(), kNameBytesMax + 1));
  report.node_id.value = Printable(CutText(message.node_id(), kNameBytesMax + 1));
  report.reason = Printable(CutText(message.reason(), kLastLineBytesMax));
  return report;
}

}  // namespace ddprun
