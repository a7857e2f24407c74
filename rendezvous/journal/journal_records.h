// SPDX-License-Identifier: Apache-2.0
// The records of the service's journal, as plain values and as bytes: accepted events with their
// times, so that replaying them through the cores gives their state; and a run's state as records,
// for a snapshot. One struct for each message of proto/journal.proto.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <variant>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/version.h"
#include "rendezvous/membership/membership.h"
#include "rendezvous/store/kv_store.h"

namespace ddprun {

struct RunOpened {
  std::string run_id;
  // Of the service that wrote it. 0: not known, in the journal of an older one.
  unsigned protocol_version = kProtocolVersion;
};

struct RunForgotten {};

struct StoreMutation {
  std::string node_id;
  std::uint64_t id = 0;
  StoreOp op;
};

struct StoreAnswer {
  std::string node_id;
  std::uint64_t id = 0;
  StoreResult result;
};

struct RunSnapshot {
  std::uint64_t last_link = 0;
  RunState state;
};

struct JournalRecord {
  std::uint64_t run = 0;
  TimePoint now{};  // of the journal's clock
  std::variant<RunOpened, RunForgotten, MembershipEvent, StoreMutation, StoreAnswer, RunSnapshot>
      what;
};

// Without the time and the single ranks in heartbeats: they change with each, and the node reports
// them again.
MembershipEvent ForJournal(MembershipEvent event);

std::string EncodeJournalRecord(JournalRecord record);

// DATA_LOSS: not a record, or of a kind that this version does not know. Decoding what was encoded
// gives the same value, since text from nodes has passed session_convert.h before.
absl::StatusOr<JournalRecord> DecodeJournalRecord(absl::string_view bytes);

// The operations that rebuild this store from an empty one of the same round, each of about
// `bytes_max` at most. Without waiting operations, which their callers repeat.
void ForEachRebuildingOp(const KvStore& store, std::size_t bytes_max,
                         const std::function<void(StoreOp)>& on_op);

// The journal's clock: steady time while a service runs, from where the last one stopped. The cores
// are stepped with its time, so that a deadline of one process means something in the next, and the
// time without a service counts against nobody.
class JournalClock {
 public:
  // `last`: the latest time in the journal.
  JournalClock(TimePoint last, TimePoint steady_now) : offset_(last - steady_now) {}

  TimePoint ToJournal(TimePoint steady) const { return steady + offset_; }
  TimePoint ToSteady(TimePoint journal) const { return journal - offset_; }

 private:
  const Duration offset_;
};

}  // namespace ddprun
