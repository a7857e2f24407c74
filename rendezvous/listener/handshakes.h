// SPDX-License-Identifier: Apache-2.0
// How many connections may be in a handshake at once, and how many there may be at all. A handshake
// costs a hundred KB and a millisecond, so that those who only begin one must not keep out those
// who finish it: members have slots of their own, and while somebody waits the oldest unfinished
// handshake has to go. Pure: told what happens, says what may.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "absl/container/flat_hash_map.h"

namespace ddprun {

class Handshakes {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  // Whose slots a handshake takes.
  enum class Pool {
    kStrangers,  // may be anybody; a group is an address
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

  // Which socket it was: its number may have become another one's since.
  struct Socket {
    int fd = -1;
    std::uint64_t cookie = 0;
  };

  explicit Handshakes(Limits limits) : limits_(limits) {}

  // Whether one more of `group` may begin.
  bool MayBegin(Pool pool, const std::string& group) const;

  // Makes room for one of `group`, if MayBegin() is false and the oldest handshake in its way is
  // old enough: forgets that one and returns it, to be closed. Of the whole pool only a stranger's.
  std::optional<Socket> MakeRoom(Pool pool, const std::string& group, TimePoint now);

  // `peer`: address and port.
  void Began(const std::string& peer, Pool pool, const std::string& group, Socket socket,
             TimePoint now);

  // The peer has made a call: the handshake is done, and in it the peer has proven who it is.
  void Proven(const std::string& peer);

  // Forgets handshakes that are closed or too old, which gRPC does not tell. With `all`, closed
  // connections that were proven too.
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
