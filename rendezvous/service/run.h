// SPDX-License-Identifier: Apache-2.0
// One run in the service: its two cores, the lock around them, and the streams that receive their
// decisions. No gRPC type is named here. Every entry point locks, steps a core, queues the effects
// on their streams, unlocks and writes. Effects are queued under the lock since two threads'
// effects must reach a stream in the order of their steps.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
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
#include "rendezvous/store/connection_owners.h"
#include "rendezvous/observe/log_subscriptions.h"
#include "rendezvous/membership/membership.h"
#include "rendezvous/membership/operator_rules.h"
#include "rendezvous/observe/run_status.h"
#include "rendezvous/observe/run_event.h"
#include "rendezvous/store/store_hub.h"

namespace ddprun {

// A stream, as a run sees it.
class StreamSink {
 public:
  virtual ~StreamSink() = default;
  // Writes what was queued. Called without the run's lock.
  virtual void Flush() = 0;
};

// A node's stream. Push() only queues; Flush() ends the stream after End().
class DirectiveSink : public StreamSink {
 public:
  virtual void Push(Directive directive) = 0;
  virtual void End() = 0;
  // From which the node's connection comes; empty: the node is in this process.
  virtual std::string Address() { return ""; }
};

// A stream of the store, likewise.
class ReplySink : public StreamSink {
 public:
  virtual void Push(StoreReply reply) = 0;
  virtual void End(absl::Status status) = 0;
};

// A watcher of one run (ddpctl). Flush(): there is news to take. Replaced(): a newer watch has
// evicted this one.
class NewsSink : public StreamSink {
 public:
  virtual void Replaced(absl::Status why) = 0;
};

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

  // Faults (run_faults.cc). `answer` is called once, on any thread and without a lock, when the
  // node has reported or its stream has ended. Errors: those of PlanFault(). ABORTED: the node
  // could not carry it out. RESOURCE_EXHAUSTED: too many are under way.
  using FaultAnswer = std::function<void(absl::StatusOr<FaultReport>)>;
  void Inject(const FaultRequest& request, FaultAnswer answer);
  // The service itself is what the fault affects.
  void NoteFault(const std::string& words);

  // Watchers (run_logs.cc). Above the limit the oldest watch of the address with the most watches
  // is evicted. `from`: the new watcher's address. NOT_FOUND: no such node.
  absl::StatusOr<WatchId> OpenWatch(std::shared_ptr<NewsSink> sink, const RunQuestion& question,
                                    const std::string& from);
  void CloseWatch(WatchId id);
  // Absent: there is none now; with `over`, there will be none.
  std::optional<RunNews> TakeNews(WatchId id, bool& over);
  // There will be no more news of the run.
  void EndWatches();

  // Store. A stream is known by its number until StoreGone(). PERMISSION_DENIED: the node is not in
  // the run.
  absl::StatusOr<StorePeer> OpenStore(std::shared_ptr<ReplySink> sink, const StoreHello& hello);
  // Leaves in `batch` what is to be done once the replies were taken (StoreHub::Receive).
  void Receive(StorePeer peer, StoreBatch& batch, TimePoint now);
  void StoreGone(StorePeer peer);
  // Messages that the node's streams of the store have sent in this round.
  std::uint64_t store_messages(const NodeId& node_id);

  // Of at most `nodes_max` of its nodes.
  RunStatus Status(TimePoint now, std::size_t nodes_max);

  // Time. Returns the next deadline.
  std::optional<TimePoint> Tick(TimePoint now);

  bool ending();   // over, but nodes have yet to receive their verdict
  bool drained();  // over, and all streams of nodes have ended
  // When the last connected node disconnected; absent: one is connected.
  std::optional<TimePoint> deserted();
  // Declares all its nodes, none of which is connected, lost; the run is over.
  void GiveUp(const std::string& reason, TimePoint now);

  // Another run has its name now.
  void Forget();
  // The run's part of a snapshot. A snapshot shows all runs at one point of the journal: all runs
  // are locked, all add their parts, the journal takes them, all are unlocked.
  void LockForSnapshot() ABSL_EXCLUSIVE_LOCK_FUNCTION(mutex_) { mutex_.Lock(); }
  void AddParts(std::vector<std::string>& parts) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void UnlockAfterSnapshot() ABSL_UNLOCK_FUNCTION(mutex_) { mutex_.Unlock(); }

 private:
  // A message for a stream. An absent directive ends it, and so does a status.
  struct ToSession {
    std::shared_ptr<DirectiveSink> sink;
    std::optional<Directive> directive;
  };
  struct ToStore {
    std::shared_ptr<ReplySink> sink;
    std::variant<StoreReply, absl::Status> words;
  };
  using Word = std::variant<ToSession, ToStore>;
  // A message that may not be sent before `record` is in the journal.
  struct Held {
    std::uint64_t record = 0;
    Word word;
  };
  struct Watcher {
    std::shared_ptr<NewsSink> sink;
    std::string from;     // its address
    bool output = false;  // also watches the output of workers
  };
  // A fault that a node was asked for.
  struct FaultUnderWay {
    LinkId link;
    FaultRequest request;
    FaultAnswer answer;
  };
  // What to do once the lock is released.
  struct Afterwards {
    std::vector<std::shared_ptr<StreamSink>> flushes;
    std::vector<std::shared_ptr<NewsSink>> replaced;
    std::vector<std::function<void()>> fault_answers;
    std::optional<TimePoint> deadline;  // of the cores' clock
    bool says = false;
    std::uint64_t record = 0;  // the last one when the lock was released
  };

  // The cores' time: the journal's, where there is one.
  TimePoint ToCores(TimePoint steady) const {
    return journal_ == nullptr ? steady : journal_->ToJournal(steady);
  }
  TimePoint ToSteady(TimePoint cores) const {
    return journal_ == nullptr ? cores : journal_->ToSteady(cores);
  }

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

  void MakeRoomForWatchLocked(bool output, Afterwards& afterwards)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void TakeProgressLocked(LinkId link, const Report& report, TimePoint now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void StepLocked(const MembershipEvent& event, TimePoint now, Afterwards& afterwards)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void QueueLocked(StoreEffects effects, Afterwards& afterwards)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ReceiveLines(LinkId link, LogLines lines);
  void ReceiveFaultReport(LinkId link, const FaultReport& report);
  void ReceiveQueries(LinkId link, const OwnerQueries& queries, TimePoint now);
  void ReceiveAnswers(LinkId link, const OwnerAnswers& answers, TimePoint now);
  void PushLocked(ConnectionOwners::Directives directives, Afterwards& afterwards)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void FailFaultsLocked(LinkId link, Afterwards& afterwards) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void NoteFaultLocked(const NodeId& node_id, int rank, std::string words, Afterwards& afterwards)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void HearNoteLocked(const RunNotice& note, Afterwards& afterwards)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void FinishWatchesLocked(Afterwards& afterwards) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void PerformLocked(LogSubscriptions::Effects effects, Afterwards& afterwards)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SayLocked(Word word, Afterwards& afterwards) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Only with a journal.
  void AppendLocked(ServiceJournal::What what, TimePoint now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void TellJournalOfMutations();
  std::optional<TimePoint> NextDeadlineLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  static void Push(Word word, Afterwards& afterwards);
  void Perform(Afterwards afterwards) ABSL_LOCKS_EXCLUDED(mutex_);
  void Release(Afterwards& afterwards) ABSL_LOCKS_EXCLUDED(mutex_);
  void DropHeld() ABSL_LOCKS_EXCLUDED(mutex_);

  const std::string run_id_;
  const std::string begun_by_;
  const ArmTimer arm_timer_;
  RunWatcher* const watcher_;  // null: none
  ServiceJournal* const journal_;
  const std::uint64_t number_;  // in the journal

  // Keeps the order of released effects on their streams.
  absl::Mutex release_mutex_ ABSL_ACQUIRED_BEFORE(mutex_);

  absl::Mutex mutex_;
  RunState membership_ ABSL_GUARDED_BY(mutex_);
  // For the status only: no decision depends on it, and nodes report it again within a second of a
  // restart.
  ToldProgresses progress_ ABSL_GUARDED_BY(mutex_);
  StoreHub store_ ABSL_GUARDED_BY(mutex_);
  // The earliest deadline of the store that the timer is armed for.
  std::optional<TimePoint> store_armed_ ABSL_GUARDED_BY(mutex_);
  std::uint64_t last_link_ ABSL_GUARDED_BY(mutex_) = 0;
  std::uint64_t last_peer_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::flat_hash_map<LinkId, std::shared_ptr<DirectiveSink>> sessions_ ABSL_GUARDED_BY(mutex_);
  TimePoint last_session_ ABSL_GUARDED_BY(mutex_);  // when the last one ended; steady
  absl::flat_hash_map<StorePeer, std::shared_ptr<ReplySink>> store_streams_ ABSL_GUARDED_BY(mutex_);
  LogSubscriptions subscriptions_ ABSL_GUARDED_BY(mutex_);
  std::map<WatchId, Watcher> watchers_ ABSL_GUARDED_BY(mutex_);
  std::map<std::uint64_t, FaultUnderWay> faults_ ABSL_GUARDED_BY(mutex_);  // by Fault::id
  std::uint64_t last_fault_ ABSL_GUARDED_BY(mutex_) = 0;
  ConnectionOwners owners_ ABSL_GUARDED_BY(mutex_);
  TimePoint now_ ABSL_GUARDED_BY(mutex_);  // of the current step, for the journal
  std::uint64_t last_record_ ABSL_GUARDED_BY(mutex_) = 0;
  std::deque<Held> held_ ABSL_GUARDED_BY(mutex_);  // in the order of their records
};

}  // namespace ddprun
