// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/journal/journal_records.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/journal.pb.h"
#include "rendezvous/base/limits.h"
#include "rendezvous/base/overloaded.h"
#include "rendezvous/wire/failure_convert.h"
#include "rendezvous/wire/fields.h"
#include "rendezvous/wire/session_convert.h"
#include "rendezvous/wire/store_convert.h"

namespace ddprun {

// ---- A run's state. The structured bindings do not compile with another number of fields: add a
// new one to the list, and to the message.

DDPRUN_FIELDS(HostFailures) {
  [[maybe_unused]] const auto& [f1, f2, f3] = value;
  FIELD(times);
  FIELD(left_out);
  FIELD(exit_code);
}

DDPRUN_MESSAGE(RestartHistory) {
  [[maybe_unused]] const auto& [f1, f2, f3, f4, f5, f6] = value;
  FIELD(used);
  FIELD(times);
  FIELD(step);
  FIELD(step_before);
  FIELD(no_progress);
  if constexpr (LOADING) {
    for (const v1::HostFailures& host : message.hosts())
      Fields(way, value.hosts[host.host()], host);
  } else {
    for (const auto& [name, host] : value.hosts) {
      v1::HostFailures* const to = message.add_hosts();
      to->set_host(name);
      Fields(way, host, *to);
    }
  }
}

DDPRUN_FIELDS(KnownHost) {
  [[maybe_unused]] const auto& [f1, f2] = value;
  FIELD(address);
  FIELD(addresses);
}

DDPRUN_MESSAGE(PreemptionNotice) {
  [[maybe_unused]] const auto& [f1, f2, f3, f4] = value;
  FIELD(number);
  FIELD(until);
  FIELD_AS(value.node_id.value, node_id);
  FIELD(reason);
}

DDPRUN_MESSAGE(MemberNotice) {
  [[maybe_unused]] const auto& [f1, f2, f3] = value;
  FIELD(until);
  FIELD(given);
  FIELD(reason);
}

DDPRUN_MESSAGE(Suspension) {
  [[maybe_unused]] const auto& [f1, f2] = value;
  FIELD(end);
  FIELD(length);
}

DDPRUN_FIELDS(Member) {
  [[maybe_unused]] const auto& [f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15,
                                f16, f17, f18, f19, f20, f21, f22, f23, f24] = value;
  FIELD(join);
  FIELD(order);
  FIELD(node_rank);
  FIELD(seated);
  FIELD(rank_first);
  FIELD(role_rank_first);
  FIELD(role_world_size);
  FIELD(drained_by);
  FIELD(leaving);
  FIELD(can_be_kept);
  FIELD(prepares);
  FIELD(phase);
  FIELD(link);
  FIELD(last_seen);
  FIELD(words_told);
  FIELD(time);
  FIELD(time_at);
  FIELD(slow_rank);
  FIELD(damages);
  FIELD(damages_reported);
  LIST(still, kCollectivePlacesMax);
  FIELD(roles);
  FIELD(notice);
  FIELD(saved_for);
}

// Without what Reindex() computes.
DDPRUN_FIELDS(RunState) {
  [[maybe_unused]] const auto& [f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15,
                                f16, f17, f18, f19, f20, f21, f22, f23, f24, f25, f26, f27, f28,
                                f29, f30, f31, f32, f33, f34, f35, f36, f37, f38, f39, f40, f41,
                                f42, f43, f44] = value;
  FIELD(run_id);
  FIELD(durable);
  FIELD(phase);
  FIELD(round);
  FIELD(restart_count);
  FIELD(restarts);
  FIELD(rules);
  FIELD(joins);
  FIELD(cause);
  FIELD(last_cause);
  FIELD(broke);
  FIELD(was_kept);
  FIELD(outcomes);
  FIELD(sealed);
  FIELD(left_out);
  FIELD(may_restart);
  FIELD(deadline);
  FIELD(last_call_due);
  FIELD(restart_due);
  FIELD(lease_due);
  FIELD(suspension);
  FIELD(start);
  FIELD(verdict);
  FIELD(words);
  FIELD(words_version);
  FIELD(words_due);
  FIELD(words_sent);
  FIELD(time_gone);
  FIELD(stalled_in);
  FIELD(stall_due);
  FIELD(stall_look_due);
  FIELD(late_due);
  FIELD(preemption);
  FIELD(drain_due);
  if constexpr (LOADING) {
    for (const v1::RunMember& member : message.members()) {
      Fields(way, value.members[NodeId{member.join().node_id()}], member);
    }
    for (const v1::KnownHost& host : message.hosts()) Fields(way, value.hosts[host.host()], host);
    Reindex(value);
  } else {
    for (const auto& entry : value.members) Fields(way, entry.second, *message.add_members());
    for (const auto& [name, host] : value.hosts) {
      v1::KnownHost* const to = message.add_hosts();
      to->set_host(name);
      Fields(way, host, *to);
    }
  }
}

// ---- Events of the membership core

DDPRUN_MESSAGE(NodeJoined) {
  FIELD(link);
  FIELD(join);
}

DDPRUN_MESSAGE(NodeGone) { FIELD(link); }

DDPRUN_MESSAGE(NodeLost) {
  FIELD_AS(value.node_id.value, node_id);
  FIELD(reason);
}

DDPRUN_MESSAGE(RunStopped) {
  FIELD(by);
  FIELD(now);
}

DDPRUN_MESSAGE(NodeDrained) {
  FIELD_AS(value.node_id.value, node_id);
  FIELD(by);
  FIELD(at_next_round);
}

DDPRUN_MESSAGE(Tick) {}

// But for NodeReported, whose report may be of a kind that this version does not know.
DDPRUN_FIELDS(MembershipEvent) {
  KIND(NodeJoined, node_joined);
  KIND(NodeGone, node_gone);
  KIND(NodeLost, node_lost);
  KIND(RunStopped, run_stopped);
  KIND(NodeDrained, node_drained);
  KIND(Tick, tick);
}

// ---- Records

namespace {

absl::Status Unknown(absl::string_view what) {
  return absl::DataLossError(
      absl::StrCat("a record of the journal ", what,
                   "; start the version of ddprun that wrote it, or move the journal away"));
}

}  // namespace

MembershipEvent ForJournal(MembershipEvent event) {
  if (auto* reported = std::get_if<NodeReported>(&event)) {
    if (auto* heartbeat = std::get_if<Heartbeat>(&reported->report)) {
      heartbeat->time = {};
      heartbeat->ranks.clear();
    }
  }
  return event;
}

std::string EncodeJournalRecord(JournalRecord record) {
  v1::JournalRecord message;
  message.set_run(record.run);
  message.set_now(fields::ToWire(record.now, static_cast<std::int64_t*>(nullptr)));
  std::visit(
      Overloaded{[&](RunOpened& opened) {
                   message.mutable_run_opened()->set_run_id(std::move(opened.run_id));
                   message.mutable_run_opened()->set_protocol_version(opened.protocol_version);
                 },
                 [&](RunForgotten&) { message.mutable_run_forgotten(); },
                 [&](MembershipEvent& event) {
                   const auto* reported = std::get_if<NodeReported>(&event);
                   if (reported == nullptr)
                     return Fields(fields::ToMessage{}, std::as_const(event), message);
                   message.mutable_node_reported()->set_link(
                       static_cast<std::uint64_t>(reported->link));
                   *message.mutable_node_reported()->mutable_report() = ToProto(reported->report);
                 },
                 [&](StoreMutation& mutation) {
                   v1::StoreMutation* to = message.mutable_store_mutation();
                   to->set_node_id(std::move(mutation.node_id));
                   to->set_id(mutation.id);
                   *to->mutable_op() = ToProto(std::move(mutation.op));
                 },
                 [&](StoreAnswer& answer) {
                   v1::StoreAnswer* to = message.mutable_store_answer();
                   to->set_node_id(std::move(answer.node_id));
                   *to->mutable_reply() = ToProto(StoreReply{answer.id, std::move(answer.result)});
                 },
                 [&](RunSnapshot& snapshot) {
                   message.mutable_run_snapshot()->set_last_link(snapshot.last_link);
                   Fields(fields::ToMessage{}, std::as_const(snapshot.state),
                          *message.mutable_run_snapshot());
                 }},
      record.what);
  return message.SerializeAsString();
}

absl::StatusOr<JournalRecord> DecodeJournalRecord(absl::string_view bytes) {
  v1::JournalRecord message;
  if (bytes.size() > kJournalRecordBytesMax ||
      !message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return Unknown("cannot be read");
  }
  JournalRecord record;
  record.run = message.run();
  record.now = TimePoint(std::chrono::nanoseconds(message.now()));
  switch (message.kind_case()) {
    case v1::JournalRecord::kRunOpened:
      record.what =
          RunOpened{message.run_opened().run_id(), message.run_opened().protocol_version()};
      break;
    case v1::JournalRecord::kRunForgotten:
      record.what = RunForgotten{};
      break;
    case v1::JournalRecord::kNodeReported: {
      auto report = FromProto(message.node_reported().report());
      if (!report.ok()) return Unknown(report.status().message());
      // Member by member: g++ 12 warns about moving the whole struct.
      auto& reported = record.what.emplace<MembershipEvent>().emplace<NodeReported>();
      reported.link = LinkId{message.node_reported().link()};
      reported.report = *std::move(report);
      break;
    }
    case v1::JournalRecord::kStoreMutation: {
      v1::StoreMutation* from = message.mutable_store_mutation();
      auto op = FromProto(std::move(*from->mutable_op()));
      if (!op.ok()) return Unknown(op.status().message());
      record.what = StoreMutation{from->node_id(), from->id(), *std::move(op)};
      break;
    }
    case v1::JournalRecord::kStoreAnswer: {
      v1::StoreAnswer* from = message.mutable_store_answer();
      StoreReply reply = FromProto(std::move(*from->mutable_reply()));
      record.what = StoreAnswer{from->node_id(), reply.id, std::move(reply.result)};
      break;
    }
    case v1::JournalRecord::kRunSnapshot: {
      auto& snapshot = record.what.emplace<RunSnapshot>();
      snapshot.last_link = message.run_snapshot().last_link();
      Fields(fields::ToValue{}, snapshot.state, message.run_snapshot());
      break;
    }
    case v1::JournalRecord::KIND_NOT_SET:
      return Unknown("is of a kind that this version does not know");
    default:
      Fields(fields::ToValue{}, record.what.emplace<MembershipEvent>(), message);
  }
  return record;
}

void ForEachRebuildingOp(const KvStore& store, std::size_t bytes_max,
                         const std::function<void(StoreOp)>& on_op) {
  const auto empty = [&](StoreVerb verb) {
    StoreOp op;
    op.verb = verb;
    op.round = store.round();
    return op;
  };
  StoreOp set = empty(StoreVerb::kMultiSet);
  std::size_t bytes = 0;
  for (const auto& [key, value] : store.values()) {
    if (bytes > 0 && bytes + key.size() + value.size() > bytes_max) {
      on_op(std::exchange(set, empty(StoreVerb::kMultiSet)));
      bytes = 0;
    }
    set.keys.push_back(key);
    set.values.push_back(value);
    bytes += key.size() + value.size() + 1;
  }
  if (!set.keys.empty()) on_op(std::move(set));
  for (const auto& [key, values] : store.queues()) {
    for (const std::string& value : values) {
      StoreOp push = empty(StoreVerb::kQueuePush);
      push.keys.push_back(key);
      push.values.push_back(value);
      on_op(std::move(push));
    }
  }
}

}  // namespace ddprun
