// SPDX-License-Identifier: Apache-2.0
// How many connections may be in a handshake at once, and how many there may be at all. A handshake
// costs a hundred KB and a millisecond, so that those who only begin one must not keep out those
// who finish it. Pure: told what happens, says what may.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "absl/container/flat_hash_map.h"

namespace ddprun {

class Handshakes {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  struct Limits {
    std::size_t connections_max = 0;
    std::size_t handshakes_max = 0;
    std::size_t per_address_max = 0;
    std::chrono::milliseconds timeout{0};  // after which gRPC has given a handshake up
  };

  // Which socket it was: its number may have become another one's since.
  struct Socket {
    int fd = -1;
    std::uint64_t cookie = 0;
  };

  explicit Handshakes(Limits limits) : limits_(limits) {}

  // Whether one more from `address` may begin.
  bool MayBegin(const std::string& address) const;

  // `peer`: address and port.
  void Began(const std::string& peer, const std::string& address, Socket socket, TimePoint now);

  // The peer has made a call: the handshake is done, and in it the peer has proven who it is.
  void Proven(const std::string& peer);

  // Forgets handshakes that are closed or too old, which gRPC does not tell. With `all`, closed
  // connections that were proven too.
  using IsOpen = std::function<bool(const Socket&)>;
  void Sweep(TimePoint now, const IsOpen& is_open, bool all);

  // It is time for a Sweep() of all.
  bool MustSweepAll() const { return proven_.size() >= sweep_all_at_; }

  std::size_t handshakes() const { return handshakes_.size(); }
  std::size_t connections() const { return handshakes_.size() + proven_.size(); }

 private:
  struct Handshake {
    std::string address;
    Socket socket;
    TimePoint begin;
  };
  using Map = absl::flat_hash_map<std::string, Handshake>;

  Map::iterator Forget(Map::iterator it);

  const Limits limits_;
  Map handshakes_;  // by peer
  absl::flat_hash_map<std::string, std::size_t> per_address_;
  absl::flat_hash_map<std::string, Socket> proven_;  // by peer
  std::size_t sweep_all_at_ = 1024;
};

}  // namespace ddprun
