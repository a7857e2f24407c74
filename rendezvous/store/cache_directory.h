// SPDX-License-Identifier: Apache-2.0
// Who keeps what of the store, and whose answers wait until others have forgotten it. Pure.
//
// A node may answer its workers from what it keeps, so a write of a kept key is not settled until
// every node that keeps it has forgotten it, and until then nobody may learn of the write: neither
// the writer that it is done, nor a reader what it wrote. An answer that touches a key of an
// unsettled write therefore waits with it, and if it is a write's, its other keys are unsettled
// too. So every read, from a cache or not, gives what a single store would have given at one
// instant between question and answer.
//
// A node whose stream has ended may go on reading what it keeps for `kKeepTrust`
// (store_coalescer.h counts that from the sending of the last question that was answered, which is
// earlier than the stream's end). Writes of what it keeps wait for that long.
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

// What an answer waits for; kSettled: nothing.
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
  // `peer` is to forget `keys`, and to say so by this number.
  struct Forget {
    StorePeer peer;
    std::uint64_t number;
    std::vector<std::string> keys;
  };

  CacheDirectory() = default;
  explicit CacheDirectory(Limits limits) : limits_(limits) {}

  // `peer` keeps from now on the keys' values, or without `values` that the keys exist. False if
  // there is no room: it must not.
  bool Keep(StorePeer peer, const std::vector<std::string>& keys,
            const std::vector<std::string>& values);

  // An answer of a read of `keys`, or of all keys.
  PendingWrite Read(const std::vector<std::string>& keys);
  PendingWrite ReadAll();
  // An answer of an operation that changed `keys`. Who is to forget what is added to `forgets`.
  PendingWrite Write(const std::vector<std::string>& keys, Change change,
                     std::vector<Forget>& forgets);

  // What is settled by an event, in order.
  using Settled = std::vector<PendingWrite>;
  // `peer` has forgotten what it was to, up to `number`.
  Settled Forgot(StorePeer peer, std::uint64_t number);
  // Its stream ended.
  void Gone(StorePeer peer, TimePoint now);
  // It keeps nothing any more, since its node has begun anew.
  Settled Drop(StorePeer peer);
  // Once, before anything else: these were keepers of nobody knows what, and their streams have
  // ended. Until each is dropped nothing is settled. What that waits for is returned.
  PendingWrite BeginRecovery(const std::vector<StorePeer>& peers, TimePoint now);
  Settled Tick(TimePoint now);
  std::optional<TimePoint> NextDeadline() const;
  // Nobody keeps anything any more.
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
    std::deque<std::pair<std::uint64_t, PendingWrite>> asked;  // what it has not forgotten yet
    std::optional<TimePoint> trusts_until;                     // its stream has ended
  };
  struct Open {
    std::size_t missing = 0;  // nodes that have not forgotten, and unsettled writes before it
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
  // In order of time. One that came back in between has nothing left when its time comes.
  std::deque<std::pair<TimePoint, StorePeer>> gone_;
  std::uint64_t last_write_ = 0;
  absl::flat_hash_map<PendingWrite, Open> open_;
  absl::flat_hash_map<std::string, PendingWrite> unsettled_;  // by key: the last of its writes
  PendingWrite recovery_ = kSettled;                          // open as long as there is doubt
};

}  // namespace ddprun
