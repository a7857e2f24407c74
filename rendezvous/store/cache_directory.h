// SPDX-License-Identifier: Apache-2.0
// Which node caches which keys, and which replies are held until caches are invalidated. Pure.
//
// A node may answer its workers from its cache, so a write of a cached key stays pending until
// every node that caches the key has dropped it. Until then no reply may reveal the write: neither
// the writer's own nor a reader's. A reply that touches a key with a pending write is held until
// that write completes; if it is a write's reply, its other keys are pending too. So every read,
// cached or not, returns what a single store would have returned at one instant between request and
// reply.
//
// A node whose stream has ended may go on serving from its cache for `kKeepTrust`
// (store_coalescer.h counts that from the sending of the last answered request, which is earlier
// than the end of the stream). Writes of keys that it caches wait for that long.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "rendezvous/base/limits.h"
#include "rendezvous/values/session_types.h"

namespace ddprun {

// One stream of the store at the service.
enum class StorePeer : std::uint64_t {};
inline constexpr StorePeer kNoPeer{0};

// The write that a reply waits for; kSettled: none.
enum class PendingWrite : std::uint64_t {};
inline constexpr PendingWrite kSettled{0};

class CacheDirectory {
 public:
  struct Limits {
    std::size_t keepers_max = kKeepersMax;  // keys times nodes
    std::size_t keys_max = kKeptKeysMax;    // of one node
    std::size_t bytes_max = kKeptBytesMax;
  };
  enum class Change {
    kNone,   // of keys; but the operation takes its place among others that change something
    kValue,  // the keys exist, with another value
    kDeleted,
  };
  // `peer` must drop `keys`, and confirms it with this number.
  struct Forget {
    StorePeer peer;
    std::uint64_t number;
    std::vector<std::string> keys;
  };

  CacheDirectory() = default;
  explicit CacheDirectory(Limits limits) : limits_(limits) {}

  // `peer` caches the keys' values from now on, or without `values` that the keys exist. False:
  // there is no room, and it must not.
  bool Keep(StorePeer peer, const std::vector<std::string>& keys,
            const std::vector<std::string>& values);

  // The reply to a read of `keys`, or of all keys.
  PendingWrite Read(const std::vector<std::string>& keys);
  PendingWrite ReadAll();
  // The reply to an operation that changed `keys`. Adds to `forgets` which peers must drop what.
  PendingWrite Write(const std::vector<std::string>& keys, Change change,
                     std::vector<Forget>& forgets);

  // The writes that an event completes, in order.
  using Settled = std::vector<PendingWrite>;
  // `peer` has dropped what it was asked to, up to `number`.
  Settled Forgot(StorePeer peer, std::uint64_t number);
  // Its stream ended.
  void Gone(StorePeer peer, TimePoint now);
  // Its cache is empty: its node has opened another stream.
  Settled Drop(StorePeer peer);
  // Once, before anything else: after a restart of the service these peers, whose streams have
  // ended, may hold unknown cached keys. No write completes until each is dropped. Returns the
  // pending write that stands for it.
  PendingWrite BeginRecovery(const std::vector<StorePeer>& peers, TimePoint now);
  Settled Tick(TimePoint now);
  std::optional<TimePoint> NextDeadline() const;
  // All caches are empty.
  Settled Clear();

  std::size_t keepers() const { return keepers_; }

 private:
  struct Holding {
    bool with_value = false;
    std::size_t bytes = 0;
  };
  struct Peer {
    absl::flat_hash_map<std::string, Holding> keys;
    std::size_t bytes = 0;
    std::uint64_t last_number = 0;
    std::deque<std::pair<std::uint64_t, PendingWrite>> asked;  // what it has not confirmed yet
    std::optional<TimePoint> trusts_until;                     // its stream has ended
  };
  struct Open {
    std::size_t missing = 0;  // confirmations, and pending writes before it
    std::vector<PendingWrite> next;
    std::vector<std::string> keys;
  };

  std::vector<PendingWrite> UnsettledAmong(const std::vector<std::string>& keys) const;
  PendingWrite Begin(const std::vector<PendingWrite>& before);
  void Advance(PendingWrite write, Settled& settled);
  void Release(Peer& peer, const std::string& key);

  Limits limits_;
  absl::flat_hash_map<StorePeer, Peer> peers_;
  absl::flat_hash_map<std::string, absl::flat_hash_set<StorePeer>> keepers_of_;
  std::size_t keepers_ = 0;
  // In order of time. A peer that came back in between has nothing left when its time comes.
  std::deque<std::pair<TimePoint, StorePeer>> gone_;
  std::uint64_t last_write_ = 0;
  absl::flat_hash_map<PendingWrite, Open> open_;
  absl::flat_hash_map<std::string, PendingWrite> unsettled_;  // by key: the last of its writes
  PendingWrite recovery_ = kSettled;  // pending until all of BeginRecovery()'s peers are dropped
};

}  // namespace ddprun
