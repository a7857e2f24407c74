// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/handshakes.h"

#include <algorithm>
#include <utility>

namespace ddprun {

bool Handshakes::MayBegin(const std::string& address) const {
  if (connections() >= limits_.connections_max) return false;
  if (handshakes_.size() >= limits_.handshakes_max) return false;
  const auto it = per_address_.find(address);
  return it == per_address_.end() || it->second < limits_.per_address_max;
}

void Handshakes::Began(const std::string& peer, const std::string& address, Socket socket,
                       TimePoint now) {
  // A port that is used again: the connection that had it is gone.
  if (const auto it = handshakes_.find(peer); it != handshakes_.end()) Forget(it);
  proven_.erase(peer);
  handshakes_.emplace(peer, Handshake{address, socket, now});
  ++per_address_[address];
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
      // Open and no handshake any more, thus done; only no call has come yet.
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
  const auto count = per_address_.find(it->second.address);
  if (--count->second == 0) per_address_.erase(count);
  const auto next = std::next(it);
  handshakes_.erase(it);
  return next;
}

}  // namespace ddprun
