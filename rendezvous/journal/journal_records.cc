// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/journal/journal_records.h"

#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/journal.pb.h"
#include "rendezvous/base/limits.h"
#include "rendezvous/base/overloaded.h"
#include "rendezvous/wire/failure_convert.h"
#include "rendezvous/wire/session_convert.h"
#include "rendezvous/wire/store_convert.h"

namespace ddprun {
namespace {

// ---- Scalars. The messages' enums are ours plus one, since their zero is "unspecified".

static_assert(static_cast<int>(RunPhase::kForming) + 1 == v1::RunSnapshot::PHASE_FORMING);
static_assert(static_cast<int>(RunPhase::kClosed) + 1 == v1::RunSnapshot::PHASE_CLOSED);
static_assert(static_cast<int>(MemberPhase::kWaiting) + 1 == v1::RunMember::PHASE_WAITING);
static_assert(static_cast<int>(MemberPhase::kStopped) + 1 == v1::RunMember::PHASE_STOPPED);

template <typename T>
inline constexpr bool kIsPhase = std::is_same_v<T, RunPhase> || std::is_same_v<T, MemberPhase>;

template <typename Wire, typename Value>
Wire ToWire(const Value& value) {
  if constexpr (kIsPhase<Value>) {
    return static_cast<Wire>(static_cast<int>(value) + 1);
  } else if constexpr (std::is_same_v<Value, TimePoint>) {
    return std::chrono::nanoseconds(value.time_since_epoch()).count();
  } else if constexpr (std::is_same_v<Value, std::chrono::milliseconds>) {
    return value.count();
  } else {
    return static_cast<Wire>(value);
  }
}

template <typename Value, typename Wire>
Value FromWire(const Wire& wire) {
  if constexpr (kIsPhase<Value>) {
    return static_cast<Value>(static_cast<int>(wire) - 1);
  } else if constexpr (std::is_same_v<Value, TimePoint>) {
    return TimePoint(std::chrono::nanoseconds(wire));
  } else {
    return static_cast<Value>(wire);
  }
}

// ---- Fields. Each struct has one list of its fields for both directions: one line per field.

enum class Way { kSave, kLoad };

#define DDPRUN_FIELD(name)                                                          \
  if constexpr (way == Way::kSave) {                                                \
    message.set_##name(ToWire<std::decay_t<decltype(message.name())>>(value.name)); \
  } else {                                                                          \
    value.name = FromWire<std::decay_t<decltype(value.name)>>(message.name());      \
  }

#define DDPRUN_OPTIONAL_FIELD(name)                                                    \
  if constexpr (way == Way::kSave) {                                                   \
    if (value.name)                                                                    \
      message.set_##name(ToWire<std::decay_t<decltype(message.name())>>(*value.name)); \
  } else if (message.has_##name()) {                                                   \
    value.name = FromWire<std::decay_t<decltype(*value.name)>>(message.name());        \
  }

// A struct with a ToProto of its own.
#define DDPRUN_MESSAGE_FIELD(name)                   \
  if constexpr (way == Way::kSave) {                 \
    *message.mutable_##name() = ToProto(value.name); \
  } else {                                           \
    value.name = FromProto(message.name());          \
  }

#define DDPRUN_OPTIONAL_MESSAGE_FIELD(name)                           \
  if constexpr (way == Way::kSave) {                                  \
    if (value.name) *message.mutable_##name() = ToProto(*value.name); \
  } else if (message.has_##name()) {                                  \
    value.name = FromProto(message.name());                           \
  }

#define DDPRUN_REPEATED_MESSAGE_FIELD(name)                                      \
  if constexpr (way == Way::kSave) {                                             \
    for (const auto& one : value.name) *message.add_##name() = ToProto(one);     \
  } else {                                                                       \
    for (const auto& one : message.name()) value.name.push_back(FromProto(one)); \
  }

template <Way way, typename Value, typename Message>
void RulesFields(Value& value, Message& message) {
  // Does not compile with another number of fields: add a new one below, and to the message.
  [[maybe_unused]] const auto& [f1, f2, f3, f4, f5, f6, f7, f8] = value;
  DDPRUN_FIELD(nodes_min)
  DDPRUN_FIELD(nodes_max)
  DDPRUN_FIELD(restarts_max)
  DDPRUN_MESSAGE_FIELD(restart_policy)
  DDPRUN_FIELD(join_timeout)
  DDPRUN_FIELD(last_call)
  DDPRUN_FIELD(lease)
  DDPRUN_FIELD(set_by)
}

template <Way way, typename Value, typename Message>
void MemberFields(Value& value, Message& message) {
  // As above.
  [[maybe_unused]] const auto& [f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13] = value;
  DDPRUN_MESSAGE_FIELD(join)
  DDPRUN_FIELD(order)
  DDPRUN_OPTIONAL_FIELD(node_rank)
  DDPRUN_FIELD(seated)
  DDPRUN_FIELD(rank_first)
  DDPRUN_FIELD(role_rank_first)
  DDPRUN_FIELD(role_world_size)
  DDPRUN_FIELD(drained_by)
  DDPRUN_OPTIONAL_MESSAGE_FIELD(leaving)
  DDPRUN_FIELD(phase)
  DDPRUN_OPTIONAL_FIELD(link)
  DDPRUN_FIELD(last_seen)
  DDPRUN_FIELD(words_told)
}

// Without its hosts, which are keyed by name, and its times.
template <Way way, typename Value, typename Message>
void HistoryFields(Value& value, Message& message) {
  // As above.
  [[maybe_unused]] const auto& [f1, f2, f3, f4, f5, f6] = value;
  DDPRUN_FIELD(used)
  DDPRUN_FIELD(step)
  DDPRUN_FIELD(step_before)
  DDPRUN_FIELD(no_progress)
}

template <Way way, typename Value, typename Message>
void HostFields(Value& value, Message& message) {
  // As above, without its times.
  [[maybe_unused]] const auto& [f1, f2, f3] = value;
  DDPRUN_OPTIONAL_FIELD(left_out)
  DDPRUN_FIELD(exit_code)
}

// Without rules, restarts and members, which are messages of their own, and what Reindex()
// computes.
template <Way way, typename Value, typename Message>
void RunFields(Value& value, Message& message) {
  // As above.
  [[maybe_unused]] const auto& [f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15,
                                f16, f17, f18, f19, f20, f21, f22, f23, f24, f25, f26, f27, f28,
                                f29, f30, f31, f32, f33] = value;
  DDPRUN_FIELD(run_id)
  DDPRUN_FIELD(durable)
  DDPRUN_FIELD(phase)
  DDPRUN_FIELD(round)
  DDPRUN_FIELD(restart_count)
  DDPRUN_FIELD(joins)
  DDPRUN_OPTIONAL_MESSAGE_FIELD(cause)
  DDPRUN_OPTIONAL_MESSAGE_FIELD(last_cause)
  DDPRUN_FIELD(broke)
  DDPRUN_FIELD(sealed)
  DDPRUN_FIELD(left_out)
  DDPRUN_REPEATED_MESSAGE_FIELD(outcomes)
  DDPRUN_FIELD(may_restart)
  DDPRUN_FIELD(deadline)
  DDPRUN_OPTIONAL_FIELD(last_call_due)
  DDPRUN_OPTIONAL_FIELD(restart_due)
  DDPRUN_OPTIONAL_FIELD(lease_due)
  DDPRUN_OPTIONAL_MESSAGE_FIELD(start)
  DDPRUN_OPTIONAL_MESSAGE_FIELD(verdict)
  DDPRUN_FIELD(words)
  DDPRUN_FIELD(words_version)
  DDPRUN_OPTIONAL_FIELD(words_due)
  DDPRUN_OPTIONAL_FIELD(words_sent)
}

#undef DDPRUN_FIELD
#undef DDPRUN_OPTIONAL_FIELD
#undef DDPRUN_MESSAGE_FIELD
#undef DDPRUN_OPTIONAL_MESSAGE_FIELD
#undef DDPRUN_REPEATED_MESSAGE_FIELD

void Save(const RestartHistory& history, v1::RestartHistory* message) {
  HistoryFields<Way::kSave>(history, *message);
  for (const TimePoint time : history.times) message->add_times(ToWire<std::int64_t>(time));
  for (const auto& [name, host] : history.hosts) {
    v1::HostFailures* of_host = message->add_hosts();
    of_host->set_host(name);
    HostFields<Way::kSave>(host, *of_host);
    for (const TimePoint time : host.times) of_host->add_times(ToWire<std::int64_t>(time));
  }
}

RestartHistory Load(const v1::RestartHistory& message) {
  RestartHistory history;
  HistoryFields<Way::kLoad>(history, message);
  for (const auto time : message.times()) history.times.push_back(FromWire<TimePoint>(time));
  for (const v1::HostFailures& of_host : message.hosts()) {
    HostFailures& host = history.hosts[of_host.host()];
    HostFields<Way::kLoad>(host, of_host);
    for (const auto time : of_host.times()) host.times.push_back(FromWire<TimePoint>(time));
  }
  return history;
}

void Save(const RunSnapshot& snapshot, v1::RunSnapshot* message) {
  const RunState& state = snapshot.state;
  message->set_last_link(snapshot.last_link);
  RunFields<Way::kSave>(state, *message);
  Save(state.restarts, message->mutable_restarts());
  if (state.rules) RulesFields<Way::kSave>(*state.rules, *message->mutable_rules());
  for (const auto& entry : state.members) {
    MemberFields<Way::kSave>(entry.second, *message->add_members());
  }
}

RunSnapshot Load(const v1::RunSnapshot& message) {
  RunSnapshot snapshot;
  RunState& state = snapshot.state;
  snapshot.last_link = message.last_link();
  RunFields<Way::kLoad>(state, message);
  if (message.has_restarts()) {
    state.restarts = Load(message.restarts());
  } else {
    // Written by a version in which all restarts count.
    state.restarts.used = state.restart_count;
  }
  if (message.has_rules()) RulesFields<Way::kLoad>(state.rules.emplace(), message.rules());
  for (const v1::RunMember& of_member : message.members()) {
    MemberFields<Way::kLoad>(state.members[NodeId{of_member.join().node_id()}], of_member);
  }
  Reindex(state);
  return snapshot;
}

// ---- Records

void Save(const MembershipEvent& event, v1::JournalRecord* message) {
  std::visit(
      Overloaded{
          [&](const NodeJoined& joined) {
            message->mutable_node_joined()->set_link(static_cast<std::uint64_t>(joined.link));
            *message->mutable_node_joined()->mutable_join() = ToProto(joined.join);
          },
          [&](const NodeReported& reported) {
            message->mutable_node_reported()->set_link(static_cast<std::uint64_t>(reported.link));
            *message->mutable_node_reported()->mutable_report() = ToProto(reported.report);
          },
          [&](const NodeGone& gone) {
            message->mutable_node_gone()->set_link(static_cast<std::uint64_t>(gone.link));
          },
          [&](const NodeLost& lost) {
            message->mutable_node_lost()->set_node_id(lost.node_id.value);
            message->mutable_node_lost()->set_reason(lost.reason);
          },
          [&](const RunStopped& stopped) {
            message->mutable_run_stopped()->set_by(stopped.by);
            message->mutable_run_stopped()->set_now(stopped.now);
          },
          [&](const NodeDrained& drained) {
            message->mutable_node_drained()->set_node_id(drained.node_id.value);
            message->mutable_node_drained()->set_by(drained.by);
            message->mutable_node_drained()->set_at_next_round(drained.at_next_round);
          },
          [&](const Tick&) { message->mutable_tick(); }},
      event);
}

void Save(StoreAnswer answer, v1::StoreAnswer* message) {
  message->set_node_id(std::move(answer.node_id));
  message->set_id(answer.id);
  message->set_code(static_cast<int>(answer.result.status.code()));
  message->set_message(std::string(answer.result.status.message()));
  for (std::string& value : answer.result.values) *message->add_values() = std::move(value);
  message->set_number(answer.result.number);
  for (std::string& key : answer.result.keys) *message->add_keys() = std::move(key);
}

StoreAnswer Load(v1::StoreAnswer message) {
  StoreAnswer answer;
  answer.node_id = message.node_id();
  answer.id = message.id();
  answer.result.status =
      absl::Status(static_cast<absl::StatusCode>(message.code()), message.message());
  for (std::string& value : *message.mutable_values()) {
    answer.result.values.push_back(std::move(value));
  }
  answer.result.number = message.number();
  for (std::string& key : *message.mutable_keys()) answer.result.keys.push_back(std::move(key));
  return answer;
}

absl::Status Unknown(absl::string_view what) {
  return absl::DataLossError(
      absl::StrCat("a record of the journal ", what,
                   "; start the version of ddprun that wrote it, or move the journal away"));
}

}  // namespace

std::string EncodeJournalRecord(JournalRecord record) {
  v1::JournalRecord message;
  message.set_run(record.run);
  message.set_now(ToWire<std::int64_t>(record.now));
  std::visit(
      Overloaded{
          [&](RunOpened& opened) {
            message.mutable_run_opened()->set_run_id(std::move(opened.run_id));
          },
          [&](RunForgotten&) { message.mutable_run_forgotten(); },
          [&](MembershipEvent& event) { Save(event, &message); },
          [&](StoreMutation& mutation) {
            v1::StoreMutation* to = message.mutable_store_mutation();
            to->set_node_id(std::move(mutation.node_id));
            to->set_id(mutation.id);
            *to->mutable_op() = ToProto(std::move(mutation.op));
          },
          [&](StoreAnswer& answer) { Save(std::move(answer), message.mutable_store_answer()); },
          [&](RunSnapshot& snapshot) { Save(snapshot, message.mutable_run_snapshot()); }},
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
  record.now = FromWire<TimePoint>(message.now());
  switch (message.kind_case()) {
    case v1::JournalRecord::kRunOpened:
      record.what = RunOpened{message.run_opened().run_id()};
      return record;
    case v1::JournalRecord::kRunForgotten:
      record.what = RunForgotten{};
      return record;
    case v1::JournalRecord::kNodeJoined:
      record.what = MembershipEvent(NodeJoined{LinkId{message.node_joined().link()},
                                               FromProto(message.node_joined().join())});
      return record;
    case v1::JournalRecord::kNodeReported: {
      auto report = FromProto(message.node_reported().report());
      if (!report.ok()) return Unknown(report.status().message());
      // Member by member: g++ 12 warns about moving the whole struct.
      auto& reported = record.what.emplace<MembershipEvent>().emplace<NodeReported>();
      reported.link = LinkId{message.node_reported().link()};
      reported.report = *std::move(report);
      return record;
    }
    case v1::JournalRecord::kNodeGone:
      record.what = MembershipEvent(NodeGone{LinkId{message.node_gone().link()}});
      return record;
    case v1::JournalRecord::kNodeLost:
      record.what = MembershipEvent(
          NodeLost{NodeId{message.node_lost().node_id()}, message.node_lost().reason()});
      return record;
    case v1::JournalRecord::kRunStopped:
      record.what =
          MembershipEvent(RunStopped{message.run_stopped().by(), message.run_stopped().now()});
      return record;
    case v1::JournalRecord::kNodeDrained:
      record.what = MembershipEvent(NodeDrained{NodeId{message.node_drained().node_id()},
                                                message.node_drained().by(),
                                                message.node_drained().at_next_round()});
      return record;
    case v1::JournalRecord::kTick:
      record.what = MembershipEvent(Tick{});
      return record;
    case v1::JournalRecord::kStoreMutation: {
      v1::StoreMutation* from = message.mutable_store_mutation();
      auto op = FromProto(std::move(*from->mutable_op()));
      if (!op.ok()) return Unknown(op.status().message());
      record.what = StoreMutation{from->node_id(), from->id(), *std::move(op)};
      return record;
    }
    case v1::JournalRecord::kStoreAnswer:
      record.what = Load(std::move(*message.mutable_store_answer()));
      return record;
    case v1::JournalRecord::kRunSnapshot:
      record.what = Load(message.run_snapshot());
      return record;
    case v1::JournalRecord::KIND_NOT_SET:
      break;
  }
  return Unknown("is of a kind that this version does not know");
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
