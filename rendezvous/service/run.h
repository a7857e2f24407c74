// SPDX-License-Identifier: Apache-2.0
// One run in the service: its two cores, the lock around them, and the streams that receive their
// decisions. No gRPC type is named here. Every entry point locks, steps a core, queues the effects
// on their streams, unlocks and writes. Effects are queued under the lock since two threads'
// effects must reach a stream in the order of their steps.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "rendezvous/journal/journal_replay.h"
#include "rendezvous/journal/service_journal.h"
#include "rendezvous/membership/membership.h"
#include "rendezvous/membership/operator_rules.h"
#include "rendezvous/observe/run_event.h"
#include "rendezvous/observe/run_status.h"
#include "rendezvous/service/run_faults.h"
#include "rendezvous/service/run_watches.h"
#include "rendezvous/service/stream_sinks.h"
#include "rendezvous/store/connection_owners.h"
#include "rendezvous/store/store_hub.h"

namespace ddprun {

class Run {
 public:
  // Called, without the lock, with each new earliest deadline.
  using ArmTimer = std::function<void(TimePoint)>;

  // Without a journal effects are sent at once, and the run ends with this process.
  // `begun_by`: the peer whose join began the run (RunRegistry::Admit()).
  Run(std::string run_id, ArmTimer arm_timer, ServiceJournal* journal = nullptr,
      RunWatcher* watcher = nullptr, std::string begun_by = "");
  // A run from the journal of an earlier process, where it has this number. All its nodes are away,
  // and their leases begin now.
  Run(std::uint64_t number, ReplayedRun replayed, ArmTimer arm_timer, ServiceJournal& journal,
      TimePoint now, RunWatcher* watcher = nullptr);

  const std::string& run_id() const { return run_id_; }
  const std::string& begun_by() const { return begun_by_; }

  // Membership. A link is known until Closed(), since a stream ends some time after it was asked
  // to. Admit() adds the stream, unless the run is over and a new run must replace it.
  std::optional<LinkId> Admit(std::shared_ptr<DirectiveSink> sink, bool resume);
  void Joined(LinkId link, const Join& join, TimePoint now);
  void Reported(LinkId link, const Report& report, TimePoint now);
  void Gone(LinkId link, TimePoint now);
  void Closed(LinkId link);
  // False: the node is no member.
  bool Lost(const NodeId& node_id, const std::string& reason, TimePoint now);

  // An operator's request (operator_rules.h). Returns what happens, as a sentence.
  absl::StatusOr<std::string> Stop(const StopRequest& request, TimePoint now);
  absl::StatusOr<std::string> Drain(const DrainRequest& request, TimePoint now);

  // Faults. `answer` is called once, on any thread and without a lock, when the node has reported
  // or its stream has ended. Errors: those of PlanFault(). ABORTED: the node could not carry it
  // out. RESOURCE_EXHAUSTED: too many are under way.
  void Inject(const FaultRequest& request, RunFaults::Answer answer);
  // The service itself is what the fault affects.
  void NoteFault(const std::string& words);

  // Watchers: see RunWatches.
  absl::StatusOr<WatchId> OpenWatch(std::shared_ptr<NewsSink> sink, const RunQuestion& question,
                                    const std::string& from);
  void CloseWatch(WatchId id);
  std::optional<RunNews> TakeNews(WatchId id, bool& over);

  // Store. A stream is known by its number until StoreGone(). PERMISSION_DENIED: the node is not in
  // the run.
  absl::StatusOr<StorePeer> OpenStore(std::shared_ptr<ReplySink> sink, const StoreHello& hello);
  // Leaves in `batch` what is to be done once the replies were taken (StoreHub::Receive).
  void Receive(StorePeer peer, StoreBatch& batch, TimePoint now);
  void StoreGone(StorePeer peer);
  // Messages that the node's streams of the store have sent in this round.
  std::uint64_t store_messages(const NodeId& node_id);

  // Lists at most `nodes_max` of its nodes.
  RunStatus Status(TimePoint now, std::size_t nodes_max, std::size_t ranks_max);

  // Time. Returns the next deadline.
  std::optional<TimePoint> Tick(TimePoint now);

  struct Ending {
    bool is_ending = false;   // over, but nodes have yet to receive their verdict
    bool is_drained = false;  // over, and all streams of nodes have ended
    // When the last connected node disconnected; absent: one is connected.
    std::optional<TimePoint> deserted;
  };
  Ending ending();
  // Declares all its nodes, none of which is connected, lost; the run is over.
  void GiveUp(const std::string& reason, TimePoint now);

  // Another run has its name now: there will be no more news of this one.
  void Forget();
  // The run's part of a snapshot. A snapshot shows all runs at one point of the journal: all runs
  // are locked, all add their parts, the journal takes them, all are unlocked.
  absl::Mutex& snapshot_mutex() ABSL_LOCK_RETURNED(mutex_) { return mutex_; }
  void AddParts(std::vector<std::string>& parts) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

 private:
  // A message for a stream. An absent directive ends it, and so does a status.
  struct ToSession {
    std::shared_ptr<DirectiveSink> sink;
    std::optional<Directive> directive;
  };
  struct ToStore {
    std::shared_ptr<ReplySink> sink;
    std::variant<StoreReply, absl::Status> reply;
  };
  using Message = std::variant<ToSession, ToStore>;
  // A message that may not be sent before `record` is in the journal.
  struct Held {
    std::uint64_t record = 0;
    Message message;
  };
  // What to do once the lock is released.
  struct Afterwards {
    std::vector<std::shared_ptr<StreamSink>> flushes;
    std::vector<std::shared_ptr<NewsSink>> replaced;
    std::vector<std::function<void()>> fault_answers;
    std::optional<TimePoint> deadline;  // of the cores' clock
    bool says = false;
    std::uint64_t record = 0;  // the last one when the lock was released

    void Push(Message message);
  };

  // The cores' time: the journal's, where there is one.
  struct CoresClock {
    ServiceJournal* const journal;
    TimePoint ToCores(TimePoint steady) const {
      return journal == nullptr ? steady : journal->ToJournal(steady);
    }
    TimePoint ToSteady(TimePoint cores) const {
      return journal == nullptr ? cores : journal->ToSteady(cores);
    }
  };

  // Locks the run; its end unlocks it and performs what follows from the steps.
  class ABSL_SCOPED_LOCKABLE Action {
   public:
    explicit Action(Run& run) ABSL_EXCLUSIVE_LOCK_FUNCTION(run.mutex_) : run_(run) {
      run_.mutex_.Lock();
    }
    ~Action() ABSL_UNLOCK_FUNCTION() {
      run_.mutex_.Unlock();
      run_.Perform(std::move(afterwards));
    }
    Action(const Action&) = delete;
    Action& operator=(const Action&) = delete;

    Afterwards afterwards;

   private:
    Run& run_;
  };

  void StepLocked(const MembershipEvent& event, TimePoint now, Afterwards& afterwards)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void TakeFaultReportLocked(LinkId link, const FaultReport& report, Afterwards& afterwards)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void NoteFaultLocked(const NodeId& node_id, int rank, std::string words, Afterwards& afterwards)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // To nodes' streams, in order with the records of the journal; absent: the stream ends.
  void SendLocked(LinkId link, std::optional<Directive> directive, Afterwards& afterwards)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SendLocked(RunWatches::Effects effects, Afterwards& afterwards)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Not held back for the journal: it follows from no record.
  void SendAtOnceLocked(SendDirective send, Afterwards& afterwards)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SendLocked(ConnectionOwners::Directives directives, Afterwards& afterwards)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void QueueLocked(StoreEffects effects, Afterwards& afterwards)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SendOrHoldLocked(Message message, Afterwards& afterwards)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Only with a journal.
  void AppendLocked(ServiceJournal::What what, TimePoint now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void TellJournalOfMutations();
  std::optional<TimePoint> NextDeadlineLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Perform(Afterwards afterwards) ABSL_LOCKS_EXCLUDED(mutex_);
  // Absent: the record is lost, and what was to follow from it is never said.
  void Release(std::optional<std::uint64_t> record, Afterwards& afterwards)
      ABSL_LOCKS_EXCLUDED(mutex_);

  const std::string run_id_;
  const std::string begun_by_;
  const ArmTimer arm_timer_;
  RunWatcher* const watcher_;  // null: none
  ServiceJournal* const journal_;
  const CoresClock clock_{journal_};
  const std::uint64_t number_;  // in the journal

  // Keeps the order of released effects on their streams.
  absl::Mutex release_mutex_ ABSL_ACQUIRED_BEFORE(mutex_);

  absl::Mutex mutex_;
  RunState membership_ ABSL_GUARDED_BY(mutex_);
  // For the status only: no decision depends on it, and nodes report it again within a second of a
  // restart.
  ReportedProgresses progress_ ABSL_GUARDED_BY(mutex_);
  StoreHub store_ ABSL_GUARDED_BY(mutex_);
  // The earliest deadline of the store that the timer is armed for.
  std::optional<TimePoint> store_armed_ ABSL_GUARDED_BY(mutex_);
  std::uint64_t last_link_ ABSL_GUARDED_BY(mutex_) = 0;
  std::uint64_t last_peer_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::flat_hash_map<LinkId, std::shared_ptr<DirectiveSink>> sessions_ ABSL_GUARDED_BY(mutex_);
  TimePoint last_session_ ABSL_GUARDED_BY(mutex_);  // when the last one ended; steady
  absl::flat_hash_map<StorePeer, std::shared_ptr<ReplySink>> store_streams_ ABSL_GUARDED_BY(mutex_);
  RunWatches watches_ ABSL_GUARDED_BY(mutex_);
  RunFaults faults_ ABSL_GUARDED_BY(mutex_);
  ConnectionOwners owners_ ABSL_GUARDED_BY(mutex_);
  TimePoint now_ ABSL_GUARDED_BY(mutex_);  // of the current step, for the journal
  std::uint64_t last_record_ ABSL_GUARDED_BY(mutex_) = 0;
  std::deque<Held> held_ ABSL_GUARDED_BY(mutex_);  // in the order of their records
};

}  // namespace ddprun
