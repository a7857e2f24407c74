// SPDX-License-Identifier: Apache-2.0
// One run in the service: its two cores, the lock around them, and the streams that are to be told
// what they decide. No gRPC type is named here. Every entry is: lock, step, queue the effects on
// their streams, unlock, write. Effects are queued under the lock since two threads' effects must
// reach a stream in the order of their steps.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "rendezvous/kv_store.h"
#include "rendezvous/membership.h"

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

class ReplySink {
 public:
  virtual ~ReplySink() = default;
  virtual void Push(std::uint64_t id, StoreResult result) = 0;
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

  // Store. `id` is the sink's own for the operation.
  void Submit(const std::shared_ptr<ReplySink>& sink, std::uint64_t id, StoreOp op, TimePoint now);
  void Cancel(const ReplySink* sink, std::uint64_t id);
  void CancelAll(const ReplySink* sink);

  // Time. Returns the next deadline.
  std::optional<TimePoint> Tick(TimePoint now);

  bool ending();   // over but for telling the nodes
  bool drained();  // and all streams of nodes have ended

 private:
  struct Pending {
    std::shared_ptr<ReplySink> sink;
    std::uint64_t id = 0;
  };
  // What to do once the lock is released.
  struct Afterwards {
    std::vector<std::shared_ptr<DirectiveSink>> sessions;
    std::vector<std::shared_ptr<ReplySink>> replies;
    std::optional<TimePoint> deadline;
  };

  void StepLocked(const MembershipEvent& event, TimePoint now, Afterwards& afterwards)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void AnswerLocked(std::vector<KvStore::Answer> answers, Afterwards& afterwards)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::optional<TimePoint> NextDeadlineLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Perform(const Afterwards& afterwards) ABSL_LOCKS_EXCLUDED(mutex_);

  const std::string run_id_;
  const ArmTimer arm_timer_;

  absl::Mutex mutex_;
  RunState membership_ ABSL_GUARDED_BY(mutex_);
  KvStore store_ ABSL_GUARDED_BY(mutex_);
  std::uint64_t last_link_ ABSL_GUARDED_BY(mutex_) = 0;
  std::uint64_t last_ticket_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::flat_hash_map<LinkId, std::shared_ptr<DirectiveSink>> sessions_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<StoreTicket, Pending> pending_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<const ReplySink*, absl::flat_hash_map<std::uint64_t, StoreTicket>> waiting_
      ABSL_GUARDED_BY(mutex_);
};

}  // namespace ddprun
