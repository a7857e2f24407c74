// SPDX-License-Identifier: Apache-2.0
// The part of KvStore that holds operations until the keys that they wait for exist.
#include <algorithm>
#include <utility>

#include "rendezvous/store/kv_store.h"

namespace ddprun {

bool KvStore::IsPresent(const StoreOp& op, absl::string_view key) const {
  switch (op.verb) {
    case StoreVerb::kQueuePop:
      return HasQueue(key);
    case StoreVerb::kWait:
    case StoreVerb::kCheck:
      return values_.contains(key) || HasQueue(key);
    case StoreVerb::kWaitCount: {
      const auto it = values_.find(key);
      const auto count = it == values_.end() ? std::nullopt : NumberIn(it->second.text());
      return count && *count >= op.number;
    }
    default:
      return values_.contains(key);
  }
}

absl::btree_set<KvStore::WaiterId>& KvStore::WaitersOf(KeyWaiters& of, const StoreOp& op) const {
  if (op.verb == StoreVerb::kQueuePop) return of.pop;
  if (op.verb == StoreVerb::kWaitCount) return of.count;
  if (op.verb == StoreVerb::kWait) return op.keys.size() == 1 ? of.wait_alone : of.wait;
  return of.get;
}

void KvStore::Hold(StoreTicket ticket, StoreOp op, std::size_t missing, TimePoint now) {
  const WaiterId id = ++last_waiter_;
  const auto timeout = std::min(op.timeout, std::chrono::milliseconds(kStoreTimeoutMax));
  for (const std::string& key : op.keys) WaitersOf(by_key_[key], op).insert(id);
  by_deadline_.insert({now + timeout, id});
  by_ticket_.emplace(ticket, id);
  waiters_.emplace(id, Waiter{ticket, std::move(op), missing, now + timeout});
}

KvStore::Waiter KvStore::Take(WaiterId id) {
  const auto it = waiters_.find(id);
  Waiter waiter = std::move(it->second);
  waiters_.erase(it);
  for (const std::string& key : waiter.op.keys) {
    const auto of = by_key_.find(key);
    if (of == by_key_.end()) continue;  // the key is named twice, and nothing else waits for it
    WaitersOf(of->second, waiter.op).erase(id);
    if (of->second.empty()) by_key_.erase(of);
  }
  by_deadline_.erase({waiter.deadline, id});
  by_ticket_.erase(waiter.ticket);
  return waiter;
}

// `ids` must not be one of by_key_'s own sets: completed waiters are removed from those.
void KvStore::CountPresent(const absl::btree_set<WaiterId>& ids) {
  for (const WaiterId id : ids) {
    if (--waiters_.at(id).missing > 0) continue;
    Waiter waiter = Take(id);
    StoreResult result = Perform(waiter.op);
    AnswerTo(waiter.ticket, std::move(waiter.op), std::move(result));
  }
}

void KvStore::CountAbsent(const absl::btree_set<WaiterId>& ids) {
  for (const WaiterId id : ids) ++waiters_.at(id).missing;
}

void KvStore::KeyAppeared(const std::string& key) {
  const auto it = by_key_.find(key);
  if (it == by_key_.end()) return;
  absl::btree_set<WaiterId> ids = it->second.get;
  ids.insert(it->second.wait_alone.begin(), it->second.wait_alone.end());
  if (!HasQueue(key)) ids.insert(it->second.wait.begin(), it->second.wait.end());
  CountPresent(ids);
}

void KvStore::ValueChanged(const std::string& key) {
  const auto it = by_key_.find(key);
  if (it == by_key_.end()) return;
  absl::btree_set<WaiterId> reached = it->second.count;
  absl::erase_if(reached, [&](WaiterId id) { return !IsPresent(waiters_.at(id).op, key); });
  CountPresent(reached);
}

void KvStore::KeyVanished(const std::string& key) {
  const auto it = by_key_.find(key);
  if (it == by_key_.end()) return;
  CountAbsent(it->second.get);
  if (!HasQueue(key)) CountAbsent(it->second.wait);
}

}  // namespace ddprun
