// SPDX-License-Identifier: Apache-2.0
// What the service's journal says, as plain values and as bytes: what was accepted, with the time
// at which it was, so that replaying the records through the cores gives their state; and a run's
// state as records, for a snapshot. One struct for each message of proto/journal.proto.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <variant>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "rendezvous/membership/membership.h"
#include "rendezvous/store/kv_store.h"

namespace ddprun {

struct RunOpened {
  std::string run_id;
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

std::string EncodeJournalRecord(JournalRecord record);

// DATA_LOSS: not a record, or of a kind that this version does not know. What was encoded comes
// back as it was; text that came from a node has been through session_convert.h before, which is
// what makes it so.
absl::StatusOr<JournalRecord> DecodeJournalRecord(absl::string_view bytes);

// The operations that fill an empty store of the same round like this one, each of at most about
// `bytes_max`. Without those that wait, whose callers ask again.
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
