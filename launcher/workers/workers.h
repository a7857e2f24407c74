// SPDX-License-Identifier: Apache-2.0
// Starts, watches and stops the workers of this node: their processes and their output. A worker
// that can be kept (proto/round_message.h) may live for several rounds; parked workers have no rank
// yet and take the place of one that has ended.
#pragma once

#include <chrono>
#include <csignal>
#include <functional>
#include <future>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "launcher/base/background.h"
#include "launcher/base/poller.h"
#include "launcher/collectives/flight_recorder.h"
#include "launcher/output/log_mux.h"
#include "launcher/output/log_plan.h"
#include "launcher/processes/cgroup.h"
#include "launcher/processes/fork_server.h"
#include "launcher/processes/oom_watch.h"
#include "launcher/processes/orphans.h"
#include "launcher/processes/progress_sockets.h"
#include "launcher/processes/spawn.h"
#include "launcher/supervisor/supervisor.h"
#include "launcher/workers/node_config.h"
#include "launcher/workers/worker_evidence.h"
#include "proto/worker_env.h"

namespace ddprun {

// Workers are numbered: those of a round by local rank, and parked ones from local_world_size() on.
class Workers {
 public:
  // `config` and `background` must outlive the workers. Its fd() wakes the loop, which calls
  // OnTurn().
  Workers(const NodeConfig& config, Poller& poller, Console& console, const Background& background);
  ~Workers();

  // Begins the round: tells it to the workers that were kept, gives parked ones to the vacant
  // ranks, and begins to start the others; `network`: variables for them, NAME=VALUE. OnTurn()
  // continues, since the disks of log files and program may be slow.
  void Spawn(const Start& start, const std::vector<std::string>& network, TimePoint now,
             std::vector<Event>& events);

  // Parks as many workers as this node has ranks; the node is in no round.
  void Prepare();

  void OnTurn(TimePoint now, std::vector<Event>& events);

  // True once per round, when its workers were started as far as possible. The output of new ones
  // is not read before.
  bool TakeStarted() { return std::exchange(newly_started_, false); }

  // What is known of the workers' places among collectives.
  struct Places {
    // Called first when a worker has ended, or has left the round by itself; `message`: what it had
    // sent before and was not read yet. True: it has said that it waited in a collective.
    std::function<bool(int local_rank, const std::optional<ProgressMessage>& message,
                       TimePoint now)>
        on_ended;
    std::function<std::vector<RanksInPlace>()> now;               // where all wait
    std::function<std::vector<RanksInPlace>(int local_rank)> of;  // where one was last
    // The workers that have not said where they are, and what their flight recorders have.
    std::function<std::vector<int>()> missing;
    std::function<void(const DumpedPlaces&)> on_dumps;
  };
  void SetPlaces(Places places) { places_ = std::move(places); }

  // Reports that the round's workers that are not there yet cannot be started.
  void FailToSpawn(const std::string& reason, TimePoint now, std::vector<Event>& events);

  // Absent: it could not be started.
  std::optional<pid_t> pid(int local_rank) const;
  // Valid until the worker has ended; -1: there are no pidfds here.
  int pidfd(int local_rank) const { return processes_.pidfd(static_cast<std::size_t>(local_rank)); }
  // Its next end is wanted by somebody: the failure says by whom.
  void SetAskedBy(int local_rank, const std::string& by) { Of(local_rank).asked_by = by; }
  // Whether it was started for this round, and not kept or parked before it.
  bool IsNew(int local_rank) const { return !Of(local_rank).carried; }

  // The number of the round's workers.
  int size() const { return config_.local_world_size(); }
  bool IsLive(int local_rank) const;
  bool HasRoles() const { return roles_.size() > 1; }
  // Its role, where ranks are counted by role; else empty.
  std::string CountingRole(int local_rank) const;
  std::chrono::milliseconds AgeAt(TimePoint now) const {
    return std::chrono::duration_cast<std::chrono::milliseconds>(now - round_started_);
  }
  // The file for the stacks of a hung worker; empty: the round has no files.
  std::string StacksFile(int local_rank) const { return RankFile(local_rank, "stacks.txt"); }
  // Asks the flight recorders of these workers, and reads what those that have ended have left.
  // `ended`: see flight_recorder.h. Not valid: none of them has one.
  std::future<DumpedPlaces> ReadDumps(const std::vector<int>& local_ranks,
                                      std::chrono::milliseconds limit, int ended = -1) const;

  // Reads what a worker reports: Source::kWorkerProgress. Absent: it reports nothing, or is in no
  // round.
  std::optional<ProgressMessage> ReadProgress(int worker, TimePoint now,
                                              std::vector<Event>& events);

  // Sends SIGKILL to one worker's process group.
  void KillOne(int local_rank, TimePoint now, std::vector<Event>& events);

  // Sends a signal to all workers that have not had it, as --signal-scope says. Workers that have
  // ended before are reported first: later ends are caused by this agent. `keep`: workers that can
  // be kept are told that the round is broken instead, and those that have left it or are parked
  // stay.
  void Stop(int signal, bool keep, TimePoint now, std::vector<Event>& events);

  // Readable when a worker has ended: Source::kWorkerEnd.
  int ends_fd() const { return ends_.fd(); }

  // A machine of the run will be taken away. Until `preemption` is over, each worker that says that
  // it reads notices is told, and each that handles --notice-worker-signal gets it, once. Returns
  // how many of the round's workers run now, and how many of them were told.
  struct Told {
    int live = 0;
    int told = 0;
  };
  Told SetNotice(const Preemption& preemption, TimePoint now);
  void EndNotice() { notice_.reset(); }

  // Sends a signal to each worker, not to its group: its helper processes (a data loader, a shell's
  // child) have no handler and would be killed.
  void Forward(int signal);

  // Sends SIGKILL to all, and to all other processes in their cgroup. `keep` as above.
  void Kill(bool keep, TimePoint now, std::vector<Event>& events);

  // The folder of the workers' cgroup; empty: none.
  const std::string& cgroup() const { return cgroup_.path(); }

  // Handles a ready descriptor of worker `ready.worker`. Appends ends to `events`.
  void OnReady(const Ready& ready, TimePoint now, std::vector<Event>& events);

  // Handles SIGCHLD: an orphan of a worker may have ended, or a debugger may have released a dead
  // worker.
  void OnChildEnded(TimePoint now, std::vector<Event>& events);

  // The latest time for the next OnTurn().
  std::optional<TimePoint> NextDeadline() const;

  // Prints the workers that have not ended long after SIGKILL, and why.
  void ReportStuck();

  // From Spawn() until nothing of the round is left.
  bool round_live() const { return round_live_; }

  // No worker will be started any more.
  void EndForkServer();

  // The output of the workers.
  LogMux& logs() { return log_mux_; }

 private:
  struct Worker {
    std::string error_file;
    // The start of its process: its files are newer.
    std::chrono::system_clock::time_point started_on_wall;
    FlightFiles flight;
    bool can_be_kept = false;  // it has said so
    bool carried = false;      // its process is older than the round
    bool hears_notices = false;
    std::uint64_t notice_signaled = 0;  // the last notice for which it got the signal
    // Of this round:
    std::string asked_by;      // who asked for its end; empty: nobody
    bool left = false;         // it will not communicate in it any more
    bool signaled = false;     // this agent has asked it to end
    bool stopped = false;      // and it had not failed then, or was told that the round is broken
    bool was_failing = false;  // it had failed then, and had not ended yet
    // The kernel was already ending it, which may take longer than its peers' failure.
    bool was_ending = false;
  };

  Worker& Of(int worker) { return workers_[static_cast<std::size_t>(worker)]; }
  const Worker& Of(int worker) const { return workers_[static_cast<std::size_t>(worker)]; }
  int count() const { return static_cast<int>(workers_.size()); }  // with parked ones
  bool IsParked(int worker) const { return worker >= size(); }
  bool IsRunning(int worker) const;  // and it stays only if it is kept

  // ---- workers.cc: starting
  void ContinueSpawn(TimePoint now, std::vector<Event>& events);
  void FinishSpawn(const absl::Status& status, TimePoint now, std::vector<Event>& events);
  absl::Status TakeLogFolder(TimePoint now);
  absl::Status OpenLogs(TimePoint now);
  void StartProcesses(TimePoint now);
  const RoleWorkers& RoleOf(int local_rank) const {
    const Place& place = config_.places[static_cast<std::size_t>(local_rank)];
    return roles_[static_cast<std::size_t>(place.program)];
  }
  // A parked worker runs the program of this local rank.
  int StandsFor(int worker) const { return worker % size(); }
  WorkerEnv EnvironmentOf(int worker) const;
  std::string ErrorFile(int local_rank) const;
  bool WatchesCollectives() const;
  bool FailedInCollective(int local_rank, const WorkerEnded& ended, TimePoint now);
  void LetPeersSpeak(TimePoint now);
  void ReadDumpsOfFailure(int local_rank, TimePoint now);
  std::optional<TimePoint> EvidenceDeadline() const;
  std::string RankFile(int local_rank, const char* name) const;
  void ReleaseEvidence(TimePoint now, std::vector<Event>& events);
  std::string CollectiveWatchFolder() const { return config_.temp_dir + "/collective_watch"; }
  SpawnRequest RequestFor(int worker, const Place& place, std::vector<std::string> environ,
                          const LogMux::WriteEnds& ends, int cgroup) const;
  void FitToRank(int local_rank, SpawnRequest& request) const;
  bool NeedsOwnStart(int local_rank) const;
  void NoteMissingRank() const;
  OwnedFd OpenCgroup() const;
  std::shared_ptr<ForkServer> StartForkServer() const;
  void ReportLateStart();
  void TakeSpawned(std::vector<Spawned> spawned, TimePoint now, std::vector<Event>& events);
  void Watch(int worker);
  void Unwatch(int worker);
  bool IsStarting() const { return starting_ != Starting::kNo; }
  void ReportMissingProgress(const std::string& why);
  void EndUnwatched(int worker, const std::string& why);

  // ---- worker_rounds.cc: workers that live on
  void TellRound(int local_rank);
  void OnLeft(int local_rank, const ProgressMessage& message, TimePoint now,
              std::vector<Event>& events);
  std::optional<int> ReadySpare(int local_rank) const;
  void TakeSpare(int local_rank, int spare);
  void BindSpare(int local_rank);
  bool AllCanBeKept() const;
  bool AllParkedAreReady() const;
  void ReportKeeping(std::vector<Event>& events);
  int ParkedWanted() const;
  void ParkWorkers();
  absl::Status Park(int worker);
  void TakeParked(TimePoint now, std::vector<Event>& events);
  bool WaitsForSpare(TimePoint now);
  void AbandonSpare();
  std::vector<bool> KeptFlags() const;
  bool AnyKept() const;

  bool TellNotice(int worker, TimePoint now);
  void SignalNotice(TimePoint now);
  bool NoticeStands(TimePoint now) const { return notice_.has_value() && notice_deadline_ > now; }

  // ---- worker_ends.cc
  void TakeEnded(TimePoint now, std::vector<Event>& events);
  void ReapHeld(TimePoint now, std::vector<Event>& events);
  bool ReapWorker(int worker, TimePoint now, std::vector<Event>& events);
  void AddEnded(int local_rank, std::optional<OomKill> oom, std::optional<double> cpu_seconds,
                TimePoint now);
  void EndParked(int worker);
  std::vector<bool> WorkersWithRecord() const;
  bool WasStopped(int worker, const Outcome& outcome) const;
  void AskToEnd(int signal, bool keep);
  bool SignalsGroup(int worker, int signal) const;
  std::optional<std::vector<pid_t>> Orphans() const;
  bool AllSucceeded() const;
  bool SweepOrphans(bool kept, TimePoint now, std::vector<Event>& events);
  bool IsKnown(pid_t pid) const;
  ForkServerMatch MatchForkServer(pid_t pid) const;
  bool IsWorker(pid_t pid) const;
  void ReportStuckProcess(pid_t pid, std::chrono::seconds after_kill);
  void FinishIfAllGone(TimePoint now, std::vector<Event>& events);

  const NodeConfig& config_;
  Poller& poller_;
  Console& console_;
  const OwnedFd no_stdin_;  // of workers that have none; not valid: all have ddprun's
  const Background& background_;
  LogMux log_mux_;
  const std::vector<RoleWorkers> roles_;  // in the order of local ranks
  std::vector<Worker> workers_;
  ProcessSet processes_;
  ProgressSockets progress_;
  WorkerCgroup cgroup_;  // while there are workers
  // The workers' pidfds. The kernel returns ready ones in the order in which they became ready, and
  // so dead workers in their order of death.
  Poller ends_;
  std::set<int> sent_signals_;  // in this round, to groups
  OomWatch oom_watch_;
  Start start_;
  LogRound log_round_;
  LogPlan log_plan_;
  TimePoint round_started_;
  std::chrono::system_clock::time_point round_started_on_wall_;

  // The step of Spawn(); each may wait for a disk.
  enum class Starting { kNo, kLogFolder, kLogFiles, kProcesses };
  Starting starting_ = Starting::kNo;
  TimePoint starting_deadline_;  // of the log folder and files; a notice for the processes
  std::future<absl::StatusOr<std::string>> log_folder_;
  bool log_folder_made_ = false;  // its path is to be shown
  std::vector<std::string> network_;
  std::vector<LogMux::WriteEnds> write_ends_;      // of the pipes, until the workers are started
  std::vector<int> spawning_;                      // the local ranks of the batch
  OwnedFd spawn_cgroup_;                           // likewise
  const std::shared_ptr<ForkServer> fork_server_;  // absent without --preload
  Spawner spawner_;
  bool newly_started_ = false;  // not yet returned by TakeStarted()

  // Of the parked worker that is being started.
  std::optional<int> parking_;
  LogMux::WriteEnds parking_ends_;
  OwnedFd parking_cgroup_;
  Spawner parker_;
  std::optional<TimePoint> spare_deadline_;  // all others have ended, and it is waited for
  bool spare_given_up_ = false;
  bool prepares_ = false;  // between Prepare() and Spawn()
  std::optional<bool> reported_keeping_;
  int parked_ = 0;           // so far
  int parked_failures_ = 0;  // in a row

  struct DeferredStop {
    int signal = 0;
    bool keep = false;
  };
  // Requested while the workers were being started, in order.
  std::vector<DeferredStop> deferred_stops_;
  std::vector<int> deferred_forwards_;
  // Of preemption.
  std::optional<Preemption> notice_;
  TimePoint notice_deadline_{};
  std::optional<TimePoint> next_handler_look_;  // some workers do not handle its signal yet
  WorkerEvidence evidence_;
  Places places_;
  bool watched_ = false;  // the workers of this round say where they are among collectives
  // The event of a worker that failed in a collective is held so long, so that its peers can say
  // where they fail.
  std::optional<TimePoint> peers_until_;
  TimePoint peers_limit_{};
  // Likewise for the dumps of one that could not say where it was, and of its peers.
  std::future<DumpedPlaces> dumps_;
  TimePoint dumps_deadline_{};
  // Checked on each SIGCHLD: dead, but traced by a process that has not reaped it yet; or there is
  // no pidfd, or it cannot be watched. Their order of death is not known: that of local ranks.
  std::set<int> held_;
  bool round_live_ = false;  // from Spawn() to AllGone
  bool stopping_ = false;    // since Stop()
  bool end_all_ = false;     // no worker is kept: the run ends
  // Since all workers have ended or left: how far what they left behind has come,
  std::optional<LeftoverStages> leftovers_;
  LeftoverStages::Stage leftovers_told_{};  // as the supervisor knows
  std::set<pid_t> terminated_;              // of them, those that got SIGTERM
  // with the next check at this time.
  std::optional<TimePoint> next_sweep_;
  bool awaits_evidence_ =
      false;  // all processes of the round have ended, and their evidence is being read
};

}  // namespace ddprun
