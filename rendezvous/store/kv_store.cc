// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/store/kv_store.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "rendezvous/tcpstore/protocol.h"

namespace ddprun {
namespace {

std::string Quoted(const std::string& key) { return absl::StrCat("'", absl::CHexEscape(key), "'"); }

StoreResult Number(std::int64_t number) { return {.number = number}; }

StoreResult Value(StoreValue value) {
  StoreResult result;
  result.values.push_back(std::move(value));
  return result;
}

absl::Status RoundOver(RoundId of_op, RoundId of_store) {
  return absl::AbortedError(absl::StrCat("the store operation belongs to round ", ToNumber(of_op),
                                         ", but the run is in round ", ToNumber(of_store)));
}

}  // namespace

KvStore::KvStore(RoundId round, Limits limits) : round_(round), limits_(limits) {}

std::vector<KvStore::Answer> KvStore::Submit(StoreTicket ticket, StoreOp op, TimePoint now) {
  answers_.clear();
  if (absl::Status status = Check(op); !status.ok()) {
    AnswerTo(ticket, std::move(op), ErrorResult(std::move(status)));
    return std::move(answers_);
  }
  if (MayWait(op.verb)) {
    absl::flat_hash_set<absl::string_view> missing;
    for (const std::string& key : op.keys) {
      if (!IsPresent(op, key)) missing.insert(key);
    }
    StoreResult result;
    if (missing.empty()) {
      result = Perform(op);
    } else if (op.timeout.count() <= 0) {
      result = TimeIsOver(op);
    } else if (waiters_.size() < limits_.waiters_max) {
      const std::size_t count = missing.size();
      Hold(ticket, std::move(op), count, now);
      return {};
    } else {
      result = ErrorResult(
          absl::ResourceExhaustedError(absl::StrCat("the run's store holds ", limits_.waiters_max,
                                                    " waiting operations, which is its limit")));
    }
    AnswerTo(ticket, std::move(op), std::move(result));
    return std::move(answers_);
  }
  // Its own answer comes before those of the operations that waited for it.
  answers_.push_back({ticket, {}, {}});
  StoreResult result = Perform(op);
  answers_.front().result = std::move(result);
  answers_.front().op = std::move(op);
  return std::move(answers_);
}

void KvStore::AnswerTo(StoreTicket ticket, StoreOp op, StoreResult result) {
  answers_.push_back({ticket, std::move(result), std::move(op)});
}

void KvStore::Cancel(StoreTicket ticket) {
  const auto it = by_ticket_.find(ticket);
  if (it != by_ticket_.end()) Take(it->second);
}

std::vector<KvStore::Answer> KvStore::Tick(TimePoint now) {
  answers_.clear();
  while (!by_deadline_.empty() && by_deadline_.begin()->first <= now) {
    const WaiterId id = by_deadline_.begin()->second;
    Waiter waiter = Take(id);
    StoreResult result = TimeIsOver(waiter.op);
    AnswerTo(waiter.ticket, std::move(waiter.op), std::move(result));
  }
  return std::move(answers_);
}

std::optional<TimePoint> KvStore::NextDeadline() const {
  if (by_deadline_.empty()) return std::nullopt;
  return by_deadline_.begin()->first;
}

std::vector<KvStore::Answer> KvStore::Clear(RoundId round) {
  answers_.clear();
  for (auto& entry : waiters_) {
    AnswerTo(entry.second.ticket, std::move(entry.second.op),
             ErrorResult(RoundOver(round_, round)));
  }
  // The order of a hash map differs between processes; a step must not.
  std::sort(answers_.begin(), answers_.end(),
            [](const Answer& a, const Answer& b) { return a.ticket < b.ticket; });
  values_.clear();
  queues_.clear();
  queued_ = 0;
  bytes_ = 0;
  waiters_.clear();
  by_ticket_.clear();
  by_key_.clear();
  by_deadline_.clear();
  round_ = round;
  return std::move(answers_);
}

absl::Status KvStore::Check(const StoreOp& op) const {
  if (op.round != round_) return RoundOver(op.round, round_);
  if (!tcpstore::HasFieldsOfItsVerb(op)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a store operation (verb ", static_cast<int>(op.verb), ") came with ", op.keys.size(),
        " keys and ", op.values.size(), " values, which does not fit it"));
  }
  for (const std::string& key : op.keys) {
    if (key.size() > limits_.key_bytes_max) {
      return absl::ResourceExhaustedError(
          absl::StrCat("a store key of ", key.size(), " bytes (", Quoted(key.substr(0, 40)),
                       "...) is longer than the ", limits_.key_bytes_max, " allowed"));
    }
  }
  for (const std::string& value : op.values) {
    if (value.size() > limits_.value_bytes_max) {
      return absl::ResourceExhaustedError(
          absl::StrCat("a store value of ", value.size(), " bytes for key ",
                       op.keys.empty() ? "''" : Quoted(op.keys.front()), " is larger than the ",
                       limits_.value_bytes_max, " allowed"));
    }
  }
  return absl::OkStatus();
}

StoreResult KvStore::Perform(StoreOp& op) {
  switch (op.verb) {
    case StoreVerb::kSet:
      return ErrorResult(Put(op.keys[0], std::move(op.values[0])));
    case StoreVerb::kGet:
      return Value(values_.at(op.keys[0]));
    case StoreVerb::kAdd:
      return Add(op.keys[0], op.number);
    case StoreVerb::kCompareSet:
      return CompareSet(op.keys[0], op.values[0], std::move(op.values[1]));
    case StoreVerb::kCheck:
      return Number(std::all_of(op.keys.begin(), op.keys.end(),
                                [&](const std::string& key) { return IsPresent(op, key); }));
    case StoreVerb::kWait:
    case StoreVerb::kWaitCount:
      return {};
    case StoreVerb::kDelete:
      return Delete(op.keys[0]);
    case StoreVerb::kAppend: {
      const auto it = values_.find(op.keys[0]);
      return ErrorResult(Put(op.keys[0], it == values_.end() ? std::move(op.values[0])
                                                             : it->second.text() + op.values[0]));
    }
    case StoreVerb::kMultiGet:
      return MultiGet(op);
    case StoreVerb::kMultiSet:
      return MultiSet(op);
    case StoreVerb::kNumKeys:
    case StoreVerb::kListKeys:
      return KeysWith("", op.verb);
    case StoreVerb::kQueuePush:
      return Push(op.keys[0], std::move(op.values[0]));
    case StoreVerb::kQueuePop:
      return Pop(op.keys[0]);
    case StoreVerb::kQueueLen: {
      const auto it = queues_.find(op.keys[0]);
      return Number(it == queues_.end() ? 0 : static_cast<std::int64_t>(it->second.size()));
    }
  }
  return ErrorResult(absl::InvalidArgumentError("unknown store verb"));
}

// c10d's rule: an absent key is set only if `expected` is empty; otherwise `expected` is returned.
StoreResult KvStore::CompareSet(const std::string& key, const std::string& expected,
                                StoreValue desired) {
  const auto it = values_.find(key);
  if (it == values_.end() ? !expected.empty() : it->second.text() != expected) {
    return Value(it == values_.end() ? StoreValue(expected) : it->second);
  }
  StoreResult result = Value(desired);
  result.status = Put(key, std::move(desired));
  if (!result.status.ok()) result.values.clear();
  return result;
}

// As with c10d's stoll, text after the digits is ignored.
std::optional<std::int64_t> KvStore::NumberIn(const std::string& text) {
  char* end = nullptr;
  errno = 0;
  const std::int64_t number = std::strtoll(text.c_str(), &end, 10);
  if (end == text.c_str() || errno != 0) return std::nullopt;
  return number;
}

// A counter is stored as decimal text, as in c10d.
StoreResult KvStore::Add(const std::string& key, std::int64_t number) {
  std::int64_t current = 0;
  const auto it = values_.find(key);
  if (it != values_.end() && !it->second.empty()) {
    const std::string& text = it->second;
    const auto found = NumberIn(text);
    if (!found) {
      return ErrorResult(absl::InvalidArgumentError(
          absl::StrCat("cannot add to key ", Quoted(key), ": its value ",
                       Quoted(text.substr(0, 40)), " is not a number of 64 bits")));
    }
    current = *found;
  }
  std::int64_t sum = 0;
  if (__builtin_add_overflow(current, number, &sum)) {
    return ErrorResult(absl::InvalidArgumentError(absl::StrCat("cannot add ", number, " to key ",
                                                               Quoted(key), ", which is ", current,
                                                               ": the sum does not fit 64 bits")));
  }
  StoreResult result = Number(sum);
  result.status = Put(key, absl::StrCat(sum));
  return result;
}

// All or nothing: room is checked before the first key is set, and waiting operations are answered
// after the last.
StoreResult KvStore::MultiSet(StoreOp& op) {
  std::size_t entries = 0;
  std::size_t freed = 0;
  std::size_t bytes = 0;
  absl::flat_hash_set<absl::string_view> named;
  for (std::size_t i = 0; i < op.keys.size(); ++i) {
    bytes += op.values[i].size();
    // A key that is named twice frees its old value once.
    if (!named.insert(op.keys[i]).second) continue;
    const auto it = values_.find(op.keys[i]);
    if (it != values_.end()) {
      freed += it->second.size();
    } else {
      ++entries;
      bytes += op.keys[i].size();
    }
  }
  if (absl::Status status = CheckRoom(entries, freed, bytes); !status.ok())
    return ErrorResult(status);
  std::vector<std::string> appeared;
  for (std::size_t i = 0; i < op.keys.size(); ++i) {
    if (Assign(op.keys[i], std::move(op.values[i]))) appeared.push_back(op.keys[i]);
  }
  for (const std::string& key : appeared) KeyAppeared(key);
  for (const std::string& key : op.keys) ValueChanged(key);
  return {};
}

StoreResult KvStore::MultiGet(const StoreOp& op) const {
  std::vector<const StoreValue*> values;
  values.reserve(op.keys.size());
  std::size_t bytes = 0;
  for (const std::string& key : op.keys) {
    values.push_back(&values_.at(key));
    bytes += values.back()->size();
  }
  if (bytes > limits_.reply_bytes_max) {
    return ErrorResult(absl::ResourceExhaustedError(absl::StrCat(
        "the values of ", op.keys.size(), " keys are ", bytes, " bytes, more than the ",
        limits_.reply_bytes_max, " that one answer may have; ask for fewer at a time")));
  }
  StoreResult result;
  result.values.reserve(values.size());
  for (const StoreValue* value : values) result.values.push_back(*value);
  return result;
}

StoreResult KvStore::KeysWith(absl::string_view prefix, StoreVerb verb) const {
  std::vector<absl::string_view> keys;
  std::size_t bytes = 0;
  for (const auto& entry : values_) {
    if (!absl::StartsWith(entry.first, prefix)) continue;
    keys.push_back(entry.first);
    bytes += entry.first.size() + 4;  // and a few bytes of framing
  }
  if (verb == StoreVerb::kNumKeys) return Number(static_cast<std::int64_t>(keys.size()));
  if (bytes > limits_.reply_bytes_max) {
    return ErrorResult(absl::ResourceExhaustedError(
        absl::StrCat("the list of ", keys.size(), " keys is ", bytes, " bytes, more than the ",
                     limits_.reply_bytes_max, " that one answer may have")));
  }
  std::sort(keys.begin(), keys.end());
  return {.keys = {keys.begin(), keys.end()}};
}

StoreResult KvStore::Delete(const std::string& key) {
  const auto it = values_.find(key);
  if (it == values_.end()) return Number(0);
  bytes_ -= key.size() + it->second.size();
  values_.erase(it);
  KeyVanished(key);
  return Number(1);
}

// Waits for several keys are answered before the first waiting QUEUE_POP takes the value; one for
// this key alone, whose caller will pop, only if none does.
StoreResult KvStore::Push(const std::string& key, StoreValue value) {
  auto it = queues_.find(key);
  const bool is_new = it == queues_.end();
  if (absl::Status status = CheckRoom(1, 0, value.size() + (is_new ? key.size() : 0));
      !status.ok()) {
    return ErrorResult(status);
  }
  if (is_new) {
    it = queues_.try_emplace(key).first;
    bytes_ += key.size();
  }
  bytes_ += value.size();
  ++queued_;
  it->second.push_back(std::move(value));
  const auto waiters = by_key_.find(key);
  if (waiters == by_key_.end()) return {};
  const absl::btree_set<WaiterId> pop = waiters->second.pop;
  const absl::btree_set<WaiterId> alone = waiters->second.wait_alone;
  if (is_new && !values_.contains(key))
    CountPresent(absl::btree_set<WaiterId>(waiters->second.wait));
  if (!pop.empty()) {
    Waiter first = Take(*pop.begin());
    AnswerTo(first.ticket, std::move(first.op), Pop(key));
  } else if (!alone.empty()) {
    CountPresent({*alone.begin()});
  }
  return {};
}

StoreResult KvStore::Pop(const std::string& key) {
  const auto it = queues_.find(key);
  StoreResult result = Value(std::move(it->second.front()));
  it->second.pop_front();
  --queued_;
  bytes_ -= result.values[0].size();
  if (it->second.empty()) {
    bytes_ -= key.size();
    queues_.erase(it);
    const auto waiters = by_key_.find(key);
    if (waiters != by_key_.end() && !values_.contains(key)) CountAbsent(waiters->second.wait);
  }
  return result;
}

absl::Status KvStore::Put(const std::string& key, StoreValue value) {
  if (value.size() > limits_.value_bytes_max) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the value of key ", Quoted(key), " would have ", value.size(),
                     " bytes, more than the ", limits_.value_bytes_max, " allowed"));
  }
  const auto it = values_.find(key);
  if (it != values_.end()) {
    if (absl::Status status = CheckRoom(0, it->second.size(), value.size()); !status.ok())
      return status;
  } else if (absl::Status status = CheckRoom(1, 0, key.size() + value.size()); !status.ok()) {
    return status;
  }
  if (Assign(key, std::move(value))) KeyAppeared(key);
  ValueChanged(key);
  return absl::OkStatus();
}

bool KvStore::Assign(const std::string& key, StoreValue value) {
  const auto it = values_.find(key);
  bytes_ += value.size();
  if (it != values_.end()) {
    bytes_ -= it->second.size();
    it->second = std::move(value);
    return false;
  }
  bytes_ += key.size();
  values_.emplace(key, std::move(value));
  return true;
}

absl::Status KvStore::CheckRoom(std::size_t more_entries, std::size_t bytes_freed,
                                std::size_t more_bytes) const {
  if (values_.size() + queued_ + more_entries > limits_.keys_max) {
    return absl::ResourceExhaustedError(absl::StrCat("the run's store has ",
                                                     values_.size() + queued_,
                                                     " keys, its limit is ", limits_.keys_max));
  }
  if (bytes_ - bytes_freed + more_bytes > limits_.bytes_max) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the run's store holds ", bytes_, " bytes, its limit is ", limits_.bytes_max));
  }
  return absl::OkStatus();
}

StoreResult KvStore::TimeIsOver(const StoreOp& op) const {
  if (op.verb == StoreVerb::kQueuePop && op.timeout.count() <= 0) {
    return ErrorResult(
        absl::NotFoundError(absl::StrCat("queue ", Quoted(op.keys[0]), " is empty")));
  }
  std::vector<std::string> missing;
  std::int64_t count = 0;
  for (const std::string& key : op.keys) {
    if (IsPresent(op, key)) continue;
    if (++count <= static_cast<std::int64_t>(kKeysInSentence)) missing.push_back(key);
  }
  return TimeOver(op.verb, op.timeout, std::move(missing), count);
}

}  // namespace ddprun
