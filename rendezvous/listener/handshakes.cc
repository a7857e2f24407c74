// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/listener/handshakes.h"

#include <algorithm>
#include <utility>

namespace ddprun {

bool Handshakes::GroupIsFull(Pool pool, const std::string& group) const {
  const auto& per_group = counts_[Index(pool)].per_group;
  const auto it = per_group.find(group);
  return it != per_group.end() && it->second >= LimitOf(pool).per_group;
}

bool Handshakes::MayBegin(Pool pool, const std::string& group) const {
  return connections() < limits_.connections_max && handshakes(pool) < LimitOf(pool).all &&
         !GroupIsFull(pool, group);
}

std::optional<Handshakes::Socket> Handshakes::MakeRoom(Pool pool, const std::string& group,
                                                       TimePoint now) {
  const bool of_group = GroupIsFull(pool, group);
  if (!of_group && (pool == Pool::kMembers || handshakes(pool) < LimitOf(pool).all)) {
    return std::nullopt;
  }
  auto oldest = handshakes_.end();
  for (auto it = handshakes_.begin(); it != handshakes_.end(); ++it) {
    const Handshake& handshake = it->second;
    if (handshake.pool != pool || (of_group && handshake.group != group)) continue;
    if (oldest == handshakes_.end() || handshake.begin < oldest->second.begin) oldest = it;
  }
  if (oldest == handshakes_.end() || now - oldest->second.begin < limits_.patience) {
    return std::nullopt;
  }
  const Socket socket = oldest->second.socket;
  Forget(oldest);
  return socket;
}

void Handshakes::Began(const std::string& peer, Pool pool, const std::string& group, Socket socket,
                       TimePoint now) {
  // A reused port: its previous connection is gone.
  if (const auto it = handshakes_.find(peer); it != handshakes_.end()) Forget(it);
  proven_.erase(peer);
  handshakes_.emplace(peer, Handshake{pool, group, socket, now});
  ++counts_[Index(pool)].all;
  ++counts_[Index(pool)].per_group[group];
}

void Handshakes::Proven(const std::string& peer) {
  const auto it = handshakes_.find(peer);
  if (it == handshakes_.end()) return;
  proven_.insert_or_assign(peer, it->second.socket);
  Forget(it);
}

void Handshakes::Sweep(TimePoint now, const IsOpen& is_open, bool all) {
  for (auto it = handshakes_.begin(); it != handshakes_.end();) {
    if (!is_open(it->second.socket)) {
      it = Forget(it);
    } else if (now - it->second.begin > limits_.timeout) {
      // Open after the handshake's timeout: it is complete, and no call has come yet.
      proven_.insert_or_assign(it->first, it->second.socket);
      it = Forget(it);
    } else {
      ++it;
    }
  }
  if (!all) return;
  absl::erase_if(proven_, [&](const auto& entry) { return !is_open(entry.second); });
  sweep_all_at_ = std::max<std::size_t>(1024, 2 * proven_.size());
}

Handshakes::Map::iterator Handshakes::Forget(Map::iterator it) {
  Counts& counts = counts_[Index(it->second.pool)];
  const auto count = counts.per_group.find(it->second.group);
  if (--count->second == 0) counts.per_group.erase(count);
  --counts.all;
  const auto next = std::next(it);
  handshakes_.erase(it);
  return next;
}

}  // namespace ddprun
