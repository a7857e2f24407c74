// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/store/cache_directory.h"

#include <algorithm>

namespace ddprun {

bool CacheDirectory::Keep(StorePeer id, const std::vector<std::string>& keys,
                          const std::vector<std::string>& values) {
  Peer& peer = peers_[id];
  std::size_t bytes = 0;
  for (const std::string& key : keys) bytes += key.size();
  for (const std::string& value : values) bytes += value.size();
  if (peer.keys.size() + keys.size() > limits_.keys_max || peer.bytes + bytes > limits_.bytes_max ||
      keepers_ + keys.size() > limits_.keepers_max) {
    return false;
  }
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const auto [it, is_new] = peer.keys.try_emplace(keys[i]);
    Holding& holding = it->second;
    const bool with_value = i < values.size();
    if (is_new) {
      keepers_of_[keys[i]].insert(id);
      ++keepers_;
    } else if (holding.with_value || !with_value) {
      continue;
    }
    peer.bytes -= holding.bytes;
    holding = {with_value, keys[i].size() + (with_value ? values[i].size() : 0)};
    peer.bytes += holding.bytes;
  }
  return true;
}

std::vector<PendingWrite> CacheDirectory::UnsettledAmong(
    const std::vector<std::string>& keys) const {
  std::vector<PendingWrite> found;
  if (recovery_ != kSettled) found.push_back(recovery_);
  if (unsettled_.empty()) return found;
  for (const std::string& key : keys) {
    const auto it = unsettled_.find(key);
    if (it != unsettled_.end()) found.push_back(it->second);
  }
  std::sort(found.begin(), found.end());
  found.erase(std::unique(found.begin(), found.end()), found.end());
  return found;
}

PendingWrite CacheDirectory::Begin(const std::vector<PendingWrite>& before) {
  const PendingWrite begun{++last_write_};
  open_[begun].missing = before.size();
  for (const PendingWrite earlier : before) open_.at(earlier).next.push_back(begun);
  return begun;
}

PendingWrite CacheDirectory::Read(const std::vector<std::string>& keys) {
  const std::vector<PendingWrite> before = UnsettledAmong(keys);
  if (before.empty()) return kSettled;
  return before.size() == 1 ? before.front() : Begin(before);
}

PendingWrite CacheDirectory::ReadAll() {
  std::vector<PendingWrite> before = UnsettledAmong({});
  for (const auto& entry : unsettled_) before.push_back(entry.second);
  std::sort(before.begin(), before.end());
  before.erase(std::unique(before.begin(), before.end()), before.end());
  if (before.empty()) return kSettled;
  return before.size() == 1 ? before.front() : Begin(before);
}

PendingWrite CacheDirectory::Write(const std::vector<std::string>& keys, Change change,
                                   std::vector<Forget>& forgets) {
  absl::btree_map<StorePeer, std::vector<std::string>> keepers;
  for (const std::string& key : keys) {
    const auto of_key = keepers_of_.find(key);
    if (change == Change::kNone || of_key == keepers_of_.end()) continue;
    for (const StorePeer peer : of_key->second) {
      const bool with_value = peers_.at(peer).keys.at(key).with_value;
      if (change == Change::kDeleted || with_value) keepers[peer].push_back(key);
    }
  }
  const std::vector<PendingWrite> before = UnsettledAmong(keys);
  if (keepers.empty() && before.empty()) return kSettled;
  const PendingWrite begun = Begin(before);
  open_.at(begun).missing += keepers.size();
  open_.at(begun).keys = keys;
  for (const std::string& key : keys) unsettled_[key] = begun;
  for (auto& [id, kept] : keepers) {
    Peer& peer = peers_.at(id);
    for (const std::string& key : kept) {
      Release(peer, key);
      const auto of_key = keepers_of_.find(key);
      if (of_key == keepers_of_.end()) continue;  // named twice
      of_key->second.erase(id);
      if (of_key->second.empty()) keepers_of_.erase(of_key);
    }
    peer.asked.emplace_back(++peer.last_number, begun);
    if (!peer.trusts_until) forgets.push_back({id, peer.last_number, std::move(kept)});
  }
  return begun;
}

void CacheDirectory::Release(Peer& peer, const std::string& key) {
  const auto it = peer.keys.find(key);
  if (it == peer.keys.end()) return;
  peer.bytes -= it->second.bytes;
  peer.keys.erase(it);
  --keepers_;
}

void CacheDirectory::Advance(PendingWrite write, Settled& settled) {
  std::vector<PendingWrite> todo{write};
  for (std::size_t i = 0; i < todo.size(); ++i) {
    const auto it = open_.find(todo[i]);
    if (it == open_.end() || --it->second.missing > 0) continue;
    for (const std::string& key : it->second.keys) {
      const auto of_key = unsettled_.find(key);
      if (of_key != unsettled_.end() && of_key->second == todo[i]) unsettled_.erase(of_key);
    }
    if (todo[i] == recovery_) recovery_ = kSettled;
    settled.push_back(todo[i]);
    const std::vector<PendingWrite> next = std::move(it->second.next);
    open_.erase(it);
    todo.insert(todo.end(), next.begin(), next.end());
  }
}

CacheDirectory::Settled CacheDirectory::Forgot(StorePeer id, std::uint64_t number) {
  Settled settled;
  const auto it = peers_.find(id);
  if (it == peers_.end()) return settled;
  auto& asked = it->second.asked;
  while (!asked.empty() && asked.front().first <= number) {
    const PendingWrite write = asked.front().second;
    asked.pop_front();
    Advance(write, settled);
  }
  return settled;
}

void CacheDirectory::Gone(StorePeer id, TimePoint now) {
  const auto it = peers_.find(id);
  if (it == peers_.end()) return;
  if (it->second.keys.empty() && it->second.asked.empty()) {
    peers_.erase(it);
  } else {
    it->second.trusts_until = now + kKeepTrust;
    gone_.emplace_back(now + kKeepTrust, id);
  }
}

CacheDirectory::Settled CacheDirectory::Drop(StorePeer id) {
  Settled settled;
  const auto it = peers_.find(id);
  if (it == peers_.end()) return settled;
  Peer peer = std::move(it->second);
  peers_.erase(it);
  keepers_ -= peer.keys.size();
  for (const auto& entry : peer.keys) {
    const auto of_key = keepers_of_.find(entry.first);
    of_key->second.erase(id);
    if (of_key->second.empty()) keepers_of_.erase(of_key);
  }
  for (const auto& asked : peer.asked) Advance(asked.second, settled);
  return settled;
}

PendingWrite CacheDirectory::BeginRecovery(const std::vector<StorePeer>& peers, TimePoint now) {
  if (peers.empty()) return kSettled;
  recovery_ = Begin({});
  open_.at(recovery_).missing = peers.size();
  for (const StorePeer id : peers) {
    Peer& peer = peers_[id];
    peer.asked.emplace_back(++peer.last_number, recovery_);
    peer.trusts_until = now + kKeepTrust;
    gone_.emplace_back(now + kKeepTrust, id);
  }
  return recovery_;
}

CacheDirectory::Settled CacheDirectory::Tick(TimePoint now) {
  Settled settled;
  while (!gone_.empty() && gone_.front().first <= now) {
    const Settled by_it = Drop(gone_.front().second);
    settled.insert(settled.end(), by_it.begin(), by_it.end());
    gone_.pop_front();
  }
  return settled;
}

std::optional<TimePoint> CacheDirectory::NextDeadline() const {
  if (gone_.empty()) return std::nullopt;
  return gone_.front().first;
}

CacheDirectory::Settled CacheDirectory::Clear() {
  Settled settled;
  for (auto it = peers_.begin(); it != peers_.end();) {
    Peer& peer = it->second;
    peer.keys.clear();
    peer.bytes = 0;
    peer.asked.clear();
    if (peer.trusts_until) {
      peers_.erase(it++);
    } else {
      ++it;
    }
  }
  gone_.clear();
  keepers_of_.clear();
  keepers_ = 0;
  for (const auto& entry : open_) settled.push_back(entry.first);
  std::sort(settled.begin(), settled.end());
  open_.clear();
  unsettled_.clear();
  recovery_ = kSettled;
  return settled;
}

}  // namespace ddprun
