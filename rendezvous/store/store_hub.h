// SPDX-License-Identifier: Apache-2.0
// The service's half of the store, as a pure function of the messages of its streams and their
// times: the keys, and the replies that each node has not confirmed (so that an operation takes
// effect exactly once, over any number of the node's streams).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "rendezvous/store/kv_store.h"
#include "rendezvous/store/reply_cache.h"
#include "rendezvous/values/store_types.h"

namespace ddprun {

// One stream of the store at the service.
enum class StorePeer : std::uint64_t {};
inline constexpr StorePeer kNoPeer{0};

// A message for a stream.
struct StoreSay {
  StorePeer peer;
  StoreReply reply;
};
// The stream must end.
struct StoreEnd {
  StorePeer peer;
  absl::Status status;
};
using StoreEffect = std::variant<StoreSay, StoreEnd>;
using StoreEffects = std::vector<StoreEffect>;

class StoreHub {
 public:
  // Called for every operation that changes something, in the order of effect: before its reply is
  // sent, and for a QUEUE_POP that waited after the QUEUE_PUSH that served it. Passing them to
  // Replay() in that order gives the same store and the same cached replies.
  using OnMutation =
      std::function<void(const std::string& node_id, std::uint64_t id, const StoreOp& op)>;

  explicit StoreHub(RoundId round, KvStore::Limits limits = {}) : store_(round, limits) {}

  void set_on_mutation(OnMutation on_mutation) { on_mutation_ = std::move(on_mutation); }

  // `peer` is a number that was not used before. The keys of a space are apart from those of the
  // others; the limits are those of the run.
  StoreEffects Open(StorePeer peer, const StoreHello& hello);
  // One message, or what is left of it: performs the operations at its front until their replies
  // take kStoreBatchBytes, and leaves the others in it. Messages of a stream that is not open are
  // ignored.
  StoreEffects Receive(StorePeer peer, StoreBatch& batch, TimePoint now);
  void Gone(StorePeer peer);

  StoreEffects Tick(TimePoint now);
  std::optional<TimePoint> NextDeadline() const { return store_.NextDeadline(); }

  // Another round: no keys, no cached replies.
  StoreEffects Clear(RoundId round);

  // `node_id` empty: a key of a snapshot.
  void Replay(const std::string& node_id, std::uint64_t id, StoreOp op);
  // The same for a reply whose operation is no longer known.
  void ReplayAnswer(const std::string& node_id, std::uint64_t id, StoreResult result);
  void ForEachAnswer(const std::function<void(const std::string& node_id, std::uint64_t id,
                                              const StoreResult&)>& on_answer) const;

  RoundId round() const { return store_.round(); }
  const KvStore& store() const { return store_; }
  // Operations that were received so far, without those of Replay().
  std::uint64_t operations() const { return operations_; }
  // How many messages the node's streams have sent in this round.
  std::uint64_t messages(const std::string& node_id) const;

 private:
  struct Node {
    StorePeer peer = kNoPeer;  // its stream now
    std::uint64_t stream = 0;
    std::uint64_t messages = 0;
    ReplyCache replies;
  };
  struct Stream {
    std::string node_id;
    std::string prefix;  // of its space's keys in the store
    absl::flat_hash_map<std::uint64_t, StoreTicket> waiting;
  };
  // Where a reply goes.
  struct Origin {
    StorePeer peer = kNoPeer;
    std::uint64_t id = 0;
  };

  void Submit(StorePeer peer, std::uint64_t id, StoreOp op, TimePoint now);
  bool AnsweredBefore(StorePeer peer, Node& node, std::uint64_t id);
  void Cancel(StorePeer peer, std::uint64_t id);
  void CloseStream(StorePeer peer);
  void TakeAnswers(std::vector<KvStore::Answer> answers);
  void TakeAnswer(KvStore::Answer answer);
  void Reply(StorePeer peer, std::uint64_t id, StoreResult result);
  void Notify(const std::string& node_id, std::uint64_t id, const StoreOp& op) {
    if (on_mutation_) on_mutation_(node_id, id, op);
  }

  OnMutation on_mutation_;
  KvStore store_;
  absl::flat_hash_map<StorePeer, Stream> streams_;
  absl::flat_hash_map<std::string, Node> nodes_;
  std::uint64_t last_ticket_ = 0;
  std::uint64_t operations_ = 0;
  absl::flat_hash_map<StoreTicket, Origin> tickets_;
  StoreEffects effects_;         // of the call in progress
  std::size_t reply_bytes_ = 0;  // of these
};

}  // namespace ddprun
