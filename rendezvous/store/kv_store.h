// SPDX-License-Identifier: Apache-2.0
// The keys of one run, with c10d's verbs and meanings (proto/ddprun.proto; torch's HashStore is the
// model): a pure function of the submitted operations and their times. Waiting operations are held
// as tickets. They are answered by the operation that provides their missing keys, by Tick() when
// their timeout expires, or by Clear().
//
// Keys and queues are two name spaces, as in c10d: CHECK and WAIT accept a key or a queue that is
// not empty; GET and MULTI_GET need keys; NUM_KEYS, LIST_KEYS and DELETE apply to keys only. A wait
// for several keys ends when all of them exist at the same time, a WAIT_COUNT when its key is a
// number that is large enough. A value that is pushed to a queue ends one WAIT that is for that key
// alone, the first: torch's client pops from a queue by a WAIT and then a QUEUE_POP that must not
// find it empty.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/btree_set.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "rendezvous/base/clock.h"
#include "rendezvous/base/limits.h"
#include "rendezvous/values/store_types.h"

namespace ddprun {

// Identifies an operation. Chosen by the caller, and not reused while the operation is unanswered.
enum class StoreTicket : std::uint64_t {};

class KvStore {
 public:
  struct Limits {
    std::size_t keys_max = kKeysMax;  // keys and queued values together
    std::size_t bytes_max = kStoreBytesMax;
    std::size_t waiters_max = kWaitersMax;
    std::size_t value_bytes_max = kValueBytesMax;
    std::size_t key_bytes_max = kKeyBytesMax;
    std::size_t reply_bytes_max =
        kMessageBytesMax - 64 * 1024;  // leaves room for the message around it
  };
  struct Answer {
    StoreTicket ticket;
    StoreResult result;
    StoreOp op;  // as submitted, but for its values
  };

  explicit KvStore(RoundId round, Limits limits);
  explicit KvStore(RoundId round) : KvStore(round, Limits{}) {}

  // An error that does not depend on the store's contents: `op` belongs to another round, has the
  // wrong number of keys or values for its verb, or is too large.
  absl::Status Check(const StoreOp& op) const;

  // Performs `op`. Returns the answer to this ticket, unless it has to wait, and the answers to
  // tickets that waited for the effect of `op`. Error codes are those of StoreResult.
  std::vector<Answer> Submit(StoreTicket ticket, StoreOp op, TimePoint now);

  // Removes a waiting ticket, which gets no answer. Other tickets are ignored.
  void Cancel(StoreTicket ticket);

  // Answers the tickets whose timeout has expired.
  std::vector<Answer> Tick(TimePoint now);
  std::optional<TimePoint> NextDeadline() const;

  // Removes all keys and queues, answers all waiting tickets with ABORTED, and begins `round`.
  std::vector<Answer> Clear(RoundId round);

  // NUM_KEYS or LIST_KEYS among the keys that begin with `prefix`.
  StoreResult KeysWith(absl::string_view prefix, StoreVerb verb) const;

  RoundId round() const { return round_; }
  // All contents, for a snapshot.
  const absl::flat_hash_map<std::string, StoreValue>& values() const { return values_; }
  const absl::flat_hash_map<std::string, std::deque<StoreValue>>& queues() const { return queues_; }
  std::size_t key_count() const { return values_.size(); }
  std::size_t waiter_count() const { return waiters_.size(); }

 private:
  // Waiters are numbered in order of arrival: the first to wait for a queue is served first.
  using WaiterId = std::uint64_t;
  struct Waiter {
    StoreTicket ticket;
    StoreOp op;
    std::size_t missing = 0;  // distinct keys that do not exist now
    TimePoint deadline;
  };
  // The waiters of a key. They stay listed under keys that exist, since a key can be deleted again
  // before the other keys of the same wait have come.
  struct KeyWaiters {
    absl::btree_set<WaiterId> get;
    absl::btree_set<WaiterId> wait;
    absl::btree_set<WaiterId> wait_alone;  // WAITs for this key only; it may be a queue since
    absl::btree_set<WaiterId> pop;
    absl::btree_set<WaiterId> count;
    bool empty() const {
      return get.empty() && wait.empty() && wait_alone.empty() && pop.empty() && count.empty();
    }
  };

  void AnswerTo(StoreTicket ticket, StoreOp op, StoreResult result);
  StoreResult Perform(StoreOp& op);
  StoreResult CompareSet(const std::string& key, const std::string& expected, StoreValue desired);
  static std::optional<std::int64_t> NumberIn(const std::string& text);
  StoreResult Add(const std::string& key, std::int64_t number);
  StoreResult MultiSet(StoreOp& op);
  StoreResult MultiGet(const StoreOp& op) const;
  StoreResult Delete(const std::string& key);
  StoreResult Push(const std::string& key, StoreValue value);
  StoreResult Pop(const std::string& key);

  absl::Status Put(const std::string& key, StoreValue value);
  bool Assign(const std::string& key,
              StoreValue value);  // true if the key is new; wakes no waiter, checks nothing
  absl::Status CheckRoom(std::size_t more_entries, std::size_t bytes_freed,
                         std::size_t more_bytes) const;

  // Waiting.
  bool HasQueue(absl::string_view key) const { return queues_.contains(key); }
  bool IsPresent(const StoreOp& op, absl::string_view key) const;
  absl::btree_set<WaiterId>& WaitersOf(KeyWaiters& of, const StoreOp& op) const;
  void Hold(StoreTicket ticket, StoreOp op, std::size_t missing, TimePoint now);
  Waiter Take(WaiterId id);  // removes it
  void CountPresent(const absl::btree_set<WaiterId>& ids);
  void CountAbsent(const absl::btree_set<WaiterId>& ids);
  void KeyAppeared(const std::string& key);
  void KeyVanished(const std::string& key);
  void ValueChanged(const std::string& key);
  StoreResult TimeIsOver(const StoreOp& op) const;

  RoundId round_;
  const Limits limits_;

  absl::flat_hash_map<std::string, StoreValue> values_;
  absl::flat_hash_map<std::string, std::deque<StoreValue>> queues_;  // none of them empty
  std::size_t queued_ = 0;
  std::size_t bytes_ = 0;

  WaiterId last_waiter_ = 0;
  absl::flat_hash_map<WaiterId, Waiter> waiters_;
  absl::flat_hash_map<StoreTicket, WaiterId> by_ticket_;
  absl::flat_hash_map<std::string, KeyWaiters> by_key_;
  absl::btree_set<std::pair<TimePoint, WaiterId>> by_deadline_;

  std::vector<Answer> answers_;  // of the call in progress
};

}  // namespace ddprun
