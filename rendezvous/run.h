// SPDX-License-Identifier: Apache-2.0
// One run in the service: its two cores, the lock around them, and the streams that are to be told
// what they decide. No gRPC type is named here. Every entry is: lock, step, queue the effects on
// their streams, unlock, write. Effects are queued under the lock since two threads' effects must
// reach a stream in the order of their steps.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "rendezvous/membership.h"
#include "rendezvous/store_hub.h"

namespace ddprun {

// A node's stream, as a run sees it. Push() only queues; Flush() writes, or ends the stream after
// End().
class DirectiveSink {
 public:
  virtual ~DirectiveSink() = default;
  virtual void Push(Directive directive) = 0;
  virtual void End() = 0;
  virtual void Flush() = 0;
};

// A stream of the store, in the same way.
class ReplySink {
 public:
  virtual ~ReplySink() = default;
  virtual void Push(StoreReply reply) = 0;
  virtual void End(absl::Status status) = 0;
  virtual void Flush() = 0;
};

class Run {
 public:
  // Called, without the lock, with each new earliest deadline.
  using ArmTimer = std::function<void(TimePoint)>;

  Run(std::string run_id, ArmTimer arm_timer);

  const std::string& run_id() const { return run_id_; }

  // Membership. A link stays known until Closed(), since a stream ends some time after it was told
  // to. Admit() takes the stream in, unless nothing is left of the run: then a new run must be made
  // in its place.
  std::optional<LinkId> Admit(std::shared_ptr<DirectiveSink> sink, bool resume);
  void Joined(LinkId link, const Join& join, TimePoint now);
  void Reported(LinkId link, const Report& report, TimePoint now);
  void Gone(LinkId link, TimePoint now);
  void Closed(LinkId link);
  // False: the node is no member.
  bool Lost(const NodeId& node_id, const std::string& reason, TimePoint now);

  // Store. A stream is known by its number until StoreGone(). PERMISSION_DENIED: the node is not in
  // the run.
  absl::StatusOr<StorePeer> OpenStore(std::shared_ptr<ReplySink> sink, const StoreHello& hello);
  void Receive(StorePeer peer, StoreBatch batch, TimePoint now);
  void StoreGone(StorePeer peer, TimePoint now);
  // How many messages the node's streams of the store have sent in this round.
  std::uint64_t store_messages(const NodeId& node_id);

  // Time. Returns the next deadline.
  std::optional<TimePoint> Tick(TimePoint now);

  bool ending();   // over but for telling the nodes
  bool drained();  // and all streams of nodes have ended

 private:
  // What to do once the lock is released.
  struct Afterwards {
    std::vector<std::shared_ptr<DirectiveSink>> sessions;
    std::vector<std::shared_ptr<ReplySink>> replies;
    std::optional<TimePoint> deadline;
  };

  void StepLocked(const MembershipEvent& event, TimePoint now, Afterwards& afterwards)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void QueueLocked(StoreEffects effects, Afterwards& afterwards)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::optional<TimePoint> NextDeadlineLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Perform(const Afterwards& afterwards) ABSL_LOCKS_EXCLUDED(mutex_);

  const std::string run_id_;
  const ArmTimer arm_timer_;

  absl::Mutex mutex_;
  RunState membership_ ABSL_GUARDED_BY(mutex_);
  StoreHub store_ ABSL_GUARDED_BY(mutex_);
  // The earliest deadline of the store that the timer was told of and that has not come yet.
  std::optional<TimePoint> store_armed_ ABSL_GUARDED_BY(mutex_);
  std::uint64_t last_link_ ABSL_GUARDED_BY(mutex_) = 0;
  std::uint64_t last_peer_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::flat_hash_map<LinkId, std::shared_ptr<DirectiveSink>> sessions_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<StorePeer, std::shared_ptr<ReplySink>> store_streams_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ddprun
