// SPDX-License-Identifier: Apache-2.0
// A node's agent with its workers, without their processes: the real session, the real stream to
// the store and the real folder before it, so that what goes up is what an agent of that many
// workers sends. Each worker does what a program's start does: gets the id that rank 0 sets, and
// passes a barrier as c10d's store-based one is made (add, set by the last, wait).
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "rendezvous/client/session_client.h"
#include "rendezvous/proxy/store_link.h"
#include "rendezvous/store/store_coalescer.h"

namespace ddprun {

// How far a whole run's nodes are. Each is reached once by each node.
enum class Milestone : std::size_t { kAccepted, kStarted, kHaveId, kPassedBarrier, kEnded };
inline constexpr std::size_t kMilestones = 5;

// Counts nodes at milestones and keeps when the last of them came. Threadsafe.
class AgentsProgress {
 public:
  explicit AgentsProgress(int nodes) : nodes_(nodes) {}

  void Reached(Milestone milestone, TimePoint now);
  // The first one counts.
  void Failed(std::string why);

  // Until all nodes are there, something failed, or `timeout` is over. True: all are there.
  bool WaitFor(Milestone milestone, std::chrono::milliseconds timeout) {
    return WaitFor(milestone, nodes_, timeout);
  }
  // The same for so many nodes.
  bool WaitFor(Milestone milestone, int nodes, std::chrono::milliseconds timeout);
  std::string failure();
  int count(Milestone milestone);
  TimePoint last(Milestone milestone);

 private:
  const int nodes_;
  absl::Mutex mutex_;
  std::array<int, kMilestones> counts_ ABSL_GUARDED_BY(mutex_) = {};
  std::array<TimePoint, kMilestones> last_ ABSL_GUARDED_BY(mutex_) = {};
  std::string failure_ ABSL_GUARDED_BY(mutex_);
};

// Its handlers come on gRPC's threads; the rest is called by one thread. It lies still while the
// session is open.
class SimulatedAgent {
 public:
  struct Options {
    std::shared_ptr<ServiceChannel> channel;  // for the session and the store
    std::string run_id;
    int index = 0;  // among the nodes; says nothing of its rank
    int nodes = 1;
    int workers = 1;
    std::chrono::seconds patience{120};
  };

  SimulatedAgent(Options options, AgentsProgress& progress);

  // Joins. The rest follows from what the service says.
  void Begin();
  // As an agent's loop does it.
  void BeatIfDue(TimePoint now);
  // All its workers ended well.
  void Succeed();
  // Ends the session, if it has not ended, and waits for that.
  void End();

  // Messages up so far, and how many of them were heartbeats.
  struct Sent {
    int messages = 0;
    int heartbeats = 0;
  };
  Sent sent();
  std::optional<Start> start();

  static std::string NameOf(int index);

 private:
  // What a worker waits for.
  enum class Step { kSetId, kGetId, kArrive, kOpen, kWait, kDone };

  void OnSession(SessionEvent event);
  void OnStart(const Start& start);
  void OnReplies(std::vector<StoreReply> replies);
  bool TakeBatch(StoreBatch* batch);
  void Advance(StoreCoalescer::Answers answers);
  // The worker's next operation, after what it was answered.
  std::optional<StoreOp> Next(std::size_t worker, const StoreResult& result)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  StoreOp Op(StoreVerb verb, const char* key) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  StoreCoalescer::Answers SubmitLocked(std::size_t worker, StoreOp op)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Options options_;
  AgentsProgress& progress_;
  std::unique_ptr<SessionClient> session_;

  absl::Mutex mutex_;
  std::shared_ptr<StoreLink> store_ ABSL_GUARDED_BY(mutex_);
  StoreCoalescer folder_ ABSL_GUARDED_BY(mutex_);
  std::vector<Step> steps_ ABSL_GUARDED_BY(mutex_);
  std::uint64_t last_id_ ABSL_GUARDED_BY(mutex_) = 0;
  int have_id_ ABSL_GUARDED_BY(mutex_) = 0;
  int done_ ABSL_GUARDED_BY(mutex_) = 0;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<Start> start_ ABSL_GUARDED_BY(mutex_);
  Duration heartbeat_ ABSL_GUARDED_BY(mutex_){0};
  std::optional<TimePoint> heartbeat_due_ ABSL_GUARDED_BY(mutex_);
  Sent sent_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ddprun
