// SPDX-License-Identifier: Apache-2.0
// Limits the connections that are in a handshake at once, and all connections. A handshake costs
// 100 KB and a millisecond, and peers that never finish one must not keep out those that do:
// members have slots of their own, and while others wait the oldest unfinished handshake is closed.
// Pure.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "rendezvous/base/clock.h"

namespace ddprun {

class Handshakes {
 public:
  // The slots that a handshake takes.
  enum class Pool {
    kStrangers,  // not known; a group is an address
    kMembers,    // have the run's secret; a group is a tag
  };
  struct Limit {
    std::size_t all = 0;
    std::size_t per_group = 0;
  };
  struct Limits {
    std::size_t connections_max = 0;
    Limit strangers;
    Limit members;
    std::chrono::milliseconds patience{0};  // the oldest may be closed after this
    std::chrono::milliseconds timeout{0};   // after which gRPC has given a handshake up
  };

  // Identifies a socket, since its descriptor may have been reused.
  struct Socket {
    int fd = -1;
    std::uint64_t cookie = 0;
  };

  explicit Handshakes(Limits limits) : limits_(limits) {}

  // Whether one more of `group` may begin.
  bool MayBegin(Pool pool, const std::string& group) const;

  // Makes room for one of `group` if MayBegin() is false and the oldest handshake of the group, or
  // of the strangers' pool, is old enough: removes that one and returns it, to be closed.
  std::optional<Socket> MakeRoom(Pool pool, const std::string& group, TimePoint now);

  // `peer`: address and port.
  void Began(const std::string& peer, Pool pool, const std::string& group, Socket socket,
             TimePoint now);

  // The peer has made a call, so its handshake is complete and it is authenticated.
  void Proven(const std::string& peer);

  // Removes handshakes that are closed or too old, which gRPC does not report; with `all`, also
  // closed connections that were proven.
  using IsOpen = std::function<bool(const Socket&)>;
  void Sweep(TimePoint now, const IsOpen& is_open, bool all);

  // It is time for a Sweep() of all.
  bool MustSweepAll() const { return proven_.size() >= sweep_all_at_; }

  std::size_t handshakes(Pool pool) const { return counts_[Index(pool)].all; }
  std::size_t connections() const { return handshakes_.size() + proven_.size(); }

 private:
  struct Handshake {
    Pool pool = Pool::kStrangers;
    std::string group;
    Socket socket;
    TimePoint begin;
  };
  struct Counts {
    std::size_t all = 0;
    absl::flat_hash_map<std::string, std::size_t> per_group;
  };
  using Map = absl::flat_hash_map<std::string, Handshake>;

  static std::size_t Index(Pool pool) { return static_cast<std::size_t>(pool); }
  const Limit& LimitOf(Pool pool) const {
    return pool == Pool::kMembers ? limits_.members : limits_.strangers;
  }
  bool GroupIsFull(Pool pool, const std::string& group) const;
  Map::iterator Forget(Map::iterator it);

  const Limits limits_;
  Map handshakes_;  // by peer
  Counts counts_[2];
  absl::flat_hash_map<std::string, Socket> proven_;  // by peer
  std::size_t sweep_all_at_ = 1024;
};

}  // namespace ddprun
