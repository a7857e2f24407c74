// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/wire/status_convert.h"

#include "proto/failure_record.h"
#include "rendezvous/base/limits.h"
#include "rendezvous/wire/failure_convert.h"
#include "rendezvous/wire/fields.h"
#include "rendezvous/wire/session_convert.h"

namespace ddprun {

DDPRUN_MESSAGE(NodeStatus) {
  TEXT_AS(value.node_id.value, node_id, kNameBytesMax);
  TEXT(host, kNameBytesMax);
  TEXT(address, kNameBytesMax);
  FIELD(node_rank);
  FIELD(state);
  FIELD(rank_first);
  FIELD(ranks);
  FIELD(silent);
  FIELD(progress);
  FIELD(progress_age);
  LIST(roles, kLocalWorldSizeMax);
  TEXT(topology, kNameBytesMax);
  LIST(rank_reports, kLocalWorldSizeMax);
}

DDPRUN_MESSAGE(LeftOutStatus) {
  TEXT(host, kNameBytesMax);
  FIELD(failures);
  FIELD(remaining);
}

DDPRUN_MESSAGE(RunStatus) {
  TEXT(run_id, kNameBytesMax);
  FIELD(phase);
  FIELD(round);
  TEXT(reason, 2 * kFailureMessageBytesMax);
  FIELD(remaining);
  FIELD(nodes_min);
  FIELD(nodes_max);
  FIELD(world_size);
  FIELD(restarts_used);
  FIELD(restarts_max);
  FIELD(last_failure);
  FIELD(verdict);
  FIELD(node_count);
  FIELD(nodes);
  FIELD(restarts_forgiven);
  FIELD(progress);
  FIELD(progress_age);
  FIELD(left_out);
  FIELD(time);
  FIELD(preemption);
  LIST(still, kCollectivePlacesMax);
  FIELD(rank_order);
  FIELD(loss);
  if constexpr (LOADING) {
    if (value.verdict) value.verdict = FromService(message.verdict());
  }
}

// ---- For watchers

DDPRUN_FIELDS(RunQuestion) {
  FIELD(output);
  FIELD(watch);
  TEXTS(nodes, kWatchNamesMax, kNameBytesMax);
  FIELD(events);
}

v1::InjectFaultRequest ToProto(const FaultRequest& request) {
  v1::InjectFaultRequest message;
  message.set_by(ToUtf8(request.by));
  message.set_kind(static_cast<v1::FaultKind>(request.kind));
  message.set_rank(request.rank);
  message.set_node(ToUtf8(request.node));
  *message.mutable_duration() = ToDuration(request.duration);
  return message;
}

FaultRequest FromProto(const v1::InjectFaultRequest& message) {
  FaultRequest request;
  fields::Load(message.kind(), request.kind, fields::ToValue{});
  request.rank = message.rank();
  request.duration = std::clamp(ToMilliseconds(message.duration()), std::chrono::milliseconds(0),
                                std::chrono::milliseconds(kFaultDurationMax));
  return request;
}

v1::WatchRunRequest ToProto(const RunQuestion& question, const std::string& run_id) {
  v1::WatchRunRequest message;
  message.set_run_id(ToUtf8(run_id));
  Fields(fields::ToMessage{}, question, message);
  return message;
}

RunQuestion FromProto(const v1::WatchRunRequest& message) {
  RunQuestion question;
  Fields(fields::ToValue{}, question, message);
  return question;
}

DDPRUN_MESSAGE(WatchBegun) {
  TEXT(run_id, kNameBytesMax);
  TEXTS(nodes, kStatusNodesMax, kNameBytesMax);
  TEXTS(away, kStatusNodesMax, kNameBytesMax);
}

DDPRUN_MESSAGE(WorkerLines) {
  TEXT(node, kNameBytesMax);
  FIELD(node_rank);
  FIELD(lines);
}

v1::RunNews ToProto(const RunNews& news) {
  v1::RunNews message;
  if (const auto* begun = std::get_if<WatchBegun>(&news)) {
    *message.mutable_begun() = ToProto(*begun);
  } else if (const auto* lines = std::get_if<WorkerLines>(&news)) {
    *message.mutable_lines() = ToProto(*lines);
  } else if (const auto* words = std::get_if<RunWords>(&news)) {
    message.set_words(ToUtf8(words->text));
  } else if (const auto* event = std::get_if<RunEventLine>(&news)) {
    message.set_event(ToUtf8(event->json));
  } else if (std::holds_alternative<TailsEnd>(news)) {
    message.mutable_tails_end();
  } else {
    message.mutable_end();
    const auto& verdict = std::get<RunOver>(news).verdict;
    if (verdict) *message.mutable_end()->mutable_verdict() = ToProto(*verdict);
  }
  return message;
}

absl::StatusOr<RunNews> FromProto(const v1::RunNews& message) {
  switch (message.kind_case()) {
    case v1::RunNews::kBegun:
      return FromProto(message.begun());
    case v1::RunNews::kLines:
      return FromProto(message.lines());
    case v1::RunNews::kWords:
      return RunWords{Printable(message.words())};
    case v1::RunNews::kEvent:
      return RunEventLine{Printable(message.event())};
    case v1::RunNews::kTailsEnd:
      return TailsEnd{};
    case v1::RunNews::kEnd:
      if (!message.end().has_verdict()) return RunOver{};
      return RunOver{FromService(message.end().verdict())};
    case v1::RunNews::KIND_NOT_SET:
      break;
  }
  return absl::InvalidArgumentError(
      "the service sent an event of a kind that this version does not know; install the same "
      "ddprun");
}

}  // namespace ddprun
