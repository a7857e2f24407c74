// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/wire/status_convert.h"

#include "rendezvous/base/printable.h"
#include "rendezvous/wire/failure_convert.h"
#include "rendezvous/wire/scalars.h"
#include "rendezvous/wire/session_convert.h"

namespace ddprun {
namespace {

// The messages' enums are ours plus one, since their zero is "unspecified".
static_assert(static_cast<int>(RunPhase::kForming) + 1 == v1::RunStatus::PHASE_FORMING);
static_assert(static_cast<int>(RunPhase::kClosed) + 1 == v1::RunStatus::PHASE_CLOSED);
static_assert(static_cast<int>(NodeState::kWaiting) + 1 == v1::NodeStatus::STATE_WAITING);
static_assert(static_cast<int>(NodeState::kAway) + 1 == v1::NodeStatus::STATE_AWAY);

v1::NodeStatus ToProto(const NodeStatus& from) {
  v1::NodeStatus to;
  to.set_node_id(ToUtf8(from.node_id.value));
  to.set_host(ToUtf8(from.host));
  to.set_address(ToUtf8(from.address));
  if (from.node_rank) to.set_node_rank(*from.node_rank);
  to.set_state(static_cast<v1::NodeStatus::State>(static_cast<int>(from.state) + 1));
  to.set_rank_first(from.rank_first);
  to.set_ranks(from.ranks);
  *to.mutable_silent() = ToDuration(from.silent);
  if (!from.progress) return to;
  *to.mutable_progress() = ddprun::ToProto(*from.progress);
  *to.mutable_progress_age() = ToDuration(from.progress_age);
  return to;
}

NodeStatus FromProto(const v1::NodeStatus& from) {
  NodeStatus to;
  to.node_id.value = Printable(from.node_id());
  to.host = Printable(from.host());
  to.address = Printable(from.address());
  if (from.has_node_rank()) to.node_rank = from.node_rank();
  if (from.state() != v1::NodeStatus::STATE_UNSPECIFIED &&
      v1::NodeStatus::State_IsValid(from.state())) {
    to.state = static_cast<NodeState>(from.state() - 1);
  }
  to.rank_first = from.rank_first();
  to.ranks = from.ranks();
  to.silent = ToMilliseconds(from.silent());
  if (from.has_progress()) to.progress = ddprun::FromProto(from.progress());
  to.progress_age = ToMilliseconds(from.progress_age());
  return to;
}

}  // namespace

v1::RunStatus ToProto(const RunStatus& status) {
  v1::RunStatus message;
  message.set_run_id(ToUtf8(status.run_id));
  message.set_phase(static_cast<v1::RunStatus::Phase>(static_cast<int>(status.phase) + 1));
  message.set_round(ToNumber(status.round));
  message.set_reason(ToUtf8(status.reason));
  *message.mutable_remaining() = ToDuration(status.remaining);
  message.set_nodes_min(status.nodes_min);
  message.set_nodes_max(status.nodes_max);
  message.set_world_size(status.world_size);
  message.set_restarts_used(status.restarts_used);
  message.set_restarts_max(status.restarts_max);
  if (status.last_failure) *message.mutable_last_failure() = ToProto(*status.last_failure);
  if (status.verdict) *message.mutable_verdict() = ToProto(*status.verdict);
  message.set_node_count(status.node_count);
  for (const NodeStatus& node : status.nodes) *message.add_nodes() = ToProto(node);
  message.set_restarts_forgiven(status.restarts_forgiven);
  if (status.progress) {
    *message.mutable_progress() = ToProto(*status.progress);
    *message.mutable_progress_age() = ToDuration(status.progress_age);
  }
  for (const LeftOutStatus& left_out : status.left_out) {
    v1::LeftOutStatus* to = message.add_left_out();
    to->set_host(ToUtf8(left_out.host));
    to->set_failures(left_out.failures);
    *to->mutable_remaining() = ToDuration(left_out.remaining);
  }
  return message;
}

RunStatus FromProto(const v1::RunStatus& message) {
  RunStatus status;
  status.run_id = Printable(message.run_id());
  if (message.phase() != v1::RunStatus::PHASE_UNSPECIFIED &&
      v1::RunStatus::Phase_IsValid(message.phase())) {
    status.phase = static_cast<RunPhase>(message.phase() - 1);
  }
  status.round = RoundId{message.round()};
  status.reason = Printable(message.reason());
  status.remaining = ToMilliseconds(message.remaining());
  status.nodes_min = message.nodes_min();
  status.nodes_max = message.nodes_max();
  status.world_size = message.world_size();
  status.restarts_used = message.restarts_used();
  status.restarts_max = message.restarts_max();
  if (message.has_last_failure()) status.last_failure = FromProto(message.last_failure());
  if (message.has_verdict()) status.verdict = FromService(message.verdict());
  status.node_count = message.node_count();
  for (const v1::NodeStatus& node : message.nodes()) status.nodes.push_back(FromProto(node));
  status.restarts_forgiven = message.restarts_forgiven();
  if (message.has_progress()) status.progress = FromProto(message.progress());
  status.progress_age = ToMilliseconds(message.progress_age());
  for (const v1::LeftOutStatus& from : message.left_out()) {
    status.left_out.push_back({.host = Printable(from.host()),
                               .failures = from.failures(),
                               .remaining = ToMilliseconds(from.remaining())});
  }
  return status;
}

}  // namespace ddprun
