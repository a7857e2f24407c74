// SPDX-License-Identifier: Apache-2.0
// Starts, watches and stops the workers of one round on this node: their processes and their
// output.
#pragma once

#include <chrono>
#include <csignal>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "launcher/base/background.h"
#include "launcher/base/poller.h"
#include "launcher/options/options.h"
#include "launcher/output/log_mux.h"
#include "launcher/output/log_plan.h"
#include "launcher/placement/placement.h"
#include "launcher/processes/cgroup.h"
#include "launcher/processes/oom_watch.h"
#include "launcher/processes/program.h"
#include "launcher/processes/progress_sockets.h"
#include "launcher/processes/spawn.h"
#include "launcher/processes/worker_evidence.h"
#include "launcher/supervisor/supervisor.h"
#include "proto/worker_env.h"

namespace ddprun {

// What a node runs; the same for all rounds.
struct NodeConfig {
  Options options;
  Program program;
  std::vector<Place> places;  // of the workers, by local rank
  std::string host;           // this node's name
  std::string temp_dir;
  sigset_t worker_signal_mask;        // the workers start with it
  const RunCgroup* cgroup = nullptr;  // outlives the node; the rounds' own are made in it

  int local_world_size() const { return static_cast<int>(places.size()); }
  std::string agent_socket() const { return temp_dir + "/agent.sock"; }
};

class Workers {
 public:
  // `config` and `background` must outlive the workers. Its fd() wakes the loop, which calls
  // OnTurn().
  Workers(const NodeConfig& config, Poller& poller, Console& console, const Background& background);

  // Begins to start the round's workers; `network`: variables for them, NAME=VALUE. OnTurn()
  // continues, since the disks of log files and program may be slow.
  void Spawn(const Start& start, const std::vector<std::string>& network, TimePoint now,
             std::vector<Event>& events);

  void OnTurn(TimePoint now, std::vector<Event>& events);

  // True once per round, when its workers were started as far as possible. Their output is not read
  // before.
  bool TakeStarted() { return std::exchange(newly_started_, false); }

  // Called first when a worker has ended; returns where the others wait.
  void SetOnEnded(std::function<std::vector<RanksInPlace>(int local_rank)> on_ended) {
    on_ended_ = std::move(on_ended);
  }

  // Reports that none of the round's workers can be started.
  void FailToSpawn(const std::string& reason, std::vector<Event>& events);

  // Absent: it could not be started.
  std::optional<pid_t> pid(int local_rank) const;

  // The number of the round's workers.
  int size() const { return static_cast<int>(processes_.size()); }
  bool IsLive(int local_rank) const;
  std::chrono::milliseconds AgeAt(TimePoint now) const {
    return std::chrono::duration_cast<std::chrono::milliseconds>(now - started_);
  }
  // The file for the stacks of a hung worker; empty: the round has no files.
  std::string StacksFile(int local_rank) const;

  // The sockets for their progress: Source::kWorkerProgress.
  ProgressSockets& progress() { return progress_; }

  // Sends SIGKILL to one worker's process group.
  void KillOne(int local_rank, TimePoint now, std::vector<Event>& events);

  // Sends a signal to all process groups. Workers that have ended before are reported first: later
  // ends are caused by this agent.
  void Signal(int signal, TimePoint now, std::vector<Event>& events);

  // Readable when a worker has ended: Source::kWorkerEnd.
  int ends_fd() const { return ends_.fd(); }

  // Sends a signal to each worker, not to its group: its helper processes (a data loader, a shell's
  // child) have no handler and would be killed.
  void Forward(int signal);

  // Sends SIGKILL to all, and to all other processes in the round's cgroup.
  void Kill(TimePoint now, std::vector<Event>& events);

  // The folder of the round's cgroup; empty: none.
  const std::string& cgroup() const { return round_cgroup_; }

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

  // The output of the workers.
  LogMux& logs() { return log_mux_; }

 private:
  void ReportMissingProgress(const std::string& why);
  void EndUnwatched(int local_rank, const std::string& why);
  void ContinueSpawn(TimePoint now, std::vector<Event>& events);
  void FinishSpawn(const absl::Status& status, std::vector<Event>& events);
  absl::Status TakeLogFolder(TimePoint now);
  absl::Status OpenLogs(TimePoint now);
  void StartProcesses(TimePoint now);
  WorkerEnv EnvironmentOf(const Start& start) const;
  void TakeSpawned(std::vector<Spawned> spawned, TimePoint now, std::vector<Event>& events);
  bool IsStarting() const { return starting_ != Starting::kNo; }
  std::string ErrorFile(int local_rank) const;
  void AddEnded(int local_rank, std::optional<OomKill> oom, TimePoint now);
  void TakeEnded(TimePoint now, std::vector<Event>& events);
  bool ReapWorker(int local_rank, TimePoint now, std::vector<Event>& events);
  std::vector<bool> WorkersWithRecord() const;
  bool WasStopped(std::size_t index, const Outcome& outcome) const;
  void ReportStuckProcess(pid_t pid, std::chrono::seconds after_kill);
  void FinishIfAllGone(TimePoint now, std::vector<Event>& events);

  const NodeConfig& config_;
  Poller& poller_;
  Console& console_;
  const Background& background_;
  LogMux log_mux_;
  ProcessSet processes_;
  ProgressSockets progress_;
  std::string round_cgroup_;  // from Spawn() to AllGone
  // The workers' pidfds. The kernel returns ready ones in the order in which they became ready, and
  // so dead workers in their order of death.
  Poller ends_;
  // By local rank: it had not failed when this agent signaled it.
  std::vector<bool> stopped_;
  // By local rank: it had failed before that signal and had not ended yet.
  std::vector<bool> was_failing_;
  // By local rank: the kernel was already ending it, which may take longer than its peers' failure.
  std::vector<bool> was_ending_;
  std::set<int> sent_signals_;  // in this round, to groups
  OomWatch oom_watch_;
  Start start_;
  LogRound log_round_;
  LogPlan log_plan_;
  TimePoint started_;
  // The start of the round: its files are newer.
  std::chrono::system_clock::time_point started_on_wall_;

  // The step of Spawn(); each may wait for a disk.
  enum class Starting { kNo, kLogFolder, kLogFiles, kProcesses };
  Starting starting_ = Starting::kNo;
  TimePoint starting_deadline_;  // of the log folder and files; a notice for the processes
  std::future<absl::StatusOr<std::string>> log_folder_;
  bool log_folder_made_ = false;  // its path is to be shown
  std::vector<std::string> network_;
  std::vector<LogMux::WriteEnds> write_ends_;  // of the pipes, until the workers are started
  OwnedFd spawn_cgroup_;                       // likewise
  Spawner spawner_;
  bool newly_started_ = false;  // not yet returned by TakeStarted()
  // Signals that were requested while the workers were being started, in order.
  std::vector<int> deferred_signals_;   // to their groups
  std::vector<int> deferred_forwards_;  // to them alone
  WorkerEvidence evidence_;
  std::function<std::vector<RanksInPlace>(int local_rank)> on_ended_;
  // Checked on each SIGCHLD: dead, but traced by a process that has not reaped it yet; or the pidfd
  // cannot be watched.
  std::set<int> held_;
  bool round_live_ = false;  // from Spawn() to AllGone
  // All workers have ended and orphans are being killed, until this time at the latest,
  std::optional<TimePoint> sweep_deadline_;
  // with the next check at this time.
  std::optional<TimePoint> next_sweep_;
  bool awaits_evidence_ =
      false;  // all processes of the round have ended, and their evidence is being read
};

}  // namespace ddprun
