// SPDX-License-Identifier: Apache-2.0
// The workers of one round on this node, their processes and output, as one unit to start, watch
// and stop.
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

  // Begins to start the round's workers; `network` are variables for them, NAME=VALUE. Later turns
  // continue it: no disk (of the log files, of the program) is waited for here.
  void Spawn(const Start& start, const std::vector<std::string>& network, TimePoint now,
             std::vector<Event>& events);

  void OnTurn(TimePoint now, std::vector<Event>& events);

  // True, once for each round: its workers were started, as far as they could be. Nothing of them
  // is read before.
  bool TakeStarted() { return std::exchange(newly_started_, false); }

  // Called when a worker has ended, before anything else is done about it: where the others wait.
  void SetOnEnded(std::function<std::vector<RanksInPlace>(int local_rank)> on_ended) {
    on_ended_ = std::move(on_ended);
  }

  // None of the round's workers starts, for one reason.
  void FailToSpawn(const std::string& reason, std::vector<Event>& events);

  // Absent: it could not be started.
  std::optional<pid_t> pid(int local_rank) const;

  // Of the round.
  int size() const { return static_cast<int>(processes_.size()); }
  bool IsLive(int local_rank) const;
  std::chrono::milliseconds AgeAt(TimePoint now) const {
    return std::chrono::duration_cast<std::chrono::milliseconds>(now - started_);
  }
  // Where the stacks of one that hangs are kept; empty: the round has no files.
  std::string StacksFile(int local_rank) const;

  // The sockets for their progress: Source::kWorkerProgress.
  ProgressSockets& progress() { return progress_; }

  // SIGKILL to one worker's process group.
  void KillOne(int local_rank, TimePoint now, std::vector<Event>& events);

  // To all process groups. Workers that have ended before are reported first: later ends are this
  // agent's doing.
  void Signal(int signal, TimePoint now, std::vector<Event>& events);

  // Readable when a worker has ended: Source::kWorkerEnd.
  int ends_fd() const { return ends_.fd(); }

  // To each worker alone and not to its group: a helper of its own (a data loader's process, a
  // shell's child) has no handler for it and would be ended by it.
  void Forward(int signal);

  // SIGKILL to all, and to whatever else is in the round's cgroup.
  void Kill(TimePoint now, std::vector<Event>& events);

  // The folder of the round's cgroup, in which all of its processes are; empty: there is none.
  const std::string& cgroup() const { return round_cgroup_; }

  // Something of worker `ready.worker` is ready. Ends are appended to `events`.
  void OnReady(const Ready& ready, TimePoint now, std::vector<Event>& events);

  // SIGCHLD: an orphan of a worker may have ended, or a debugger let go of a dead worker.
  void OnChildEnded(TimePoint now, std::vector<Event>& events);

  // When OnTurn() must be called at the latest.
  std::optional<TimePoint> NextDeadline() const;

  // Long after SIGKILL: prints which workers are still there, and why.
  void ReportStuck();

  // From Spawn() until nothing of the round is left.
  bool round_live() const { return round_live_; }

  // The workers' output, for what it is to be shown at a time and in order.
  LogMux& logs() { return log_mux_; }

 private:
  void SayProgressIsNotHeard(const std::string& why);
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
  std::vector<bool> WhoHasLeftARecord() const;
  bool WasStopped(std::size_t index, const Outcome& outcome) const;
  void SayStuck(pid_t pid, std::chrono::seconds after_kill);
  void FinishIfAllGone(TimePoint now, std::vector<Event>& events);

  const NodeConfig& config_;
  Poller& poller_;
  Console& console_;
  const Background& background_;
  LogMux log_mux_;
  ProcessSet processes_;
  ProgressSockets progress_;
  std::string round_cgroup_;  // from Spawn() to AllGone
  // Of the workers' pidfds alone. The kernel hands ready ones out in the order in which they became
  // so, thus the dead in their order of dying.
  Poller ends_;
  // By local rank: this agent's signal reached it while it was well.
  std::vector<bool> stopped_;
  // Likewise: it had failed before that signal, and was only slow to end.
  std::vector<bool> was_failing_;
  // Likewise: the kernel was ending it already, which may take longer than its peers' failure.
  std::vector<bool> was_ending_;
  std::set<int> sent_signals_;  // in this round, to groups
  OomWatch oom_watch_;
  Start start_;
  LogRound log_round_;
  LogPlan log_plan_;
  TimePoint started_;
  // What files of this round are newer than.
  std::chrono::system_clock::time_point started_on_wall_;

  // How far Spawn() has come: each step may wait for a disk.
  enum class Starting { kNo, kLogFolder, kLogFiles, kProcesses };
  Starting starting_ = Starting::kNo;
  TimePoint starting_deadline_;  // of the log folder and files; a notice for the processes
  std::future<absl::StatusOr<std::string>> log_folder_;
  bool log_folder_made_ = false;  // it is to be shown
  std::vector<std::string> network_;
  std::vector<LogMux::WriteEnds> write_ends_;  // of the pipes, until the workers have them
  OwnedFd spawn_cgroup_;                       // likewise
  Spawner spawner_;
  bool newly_started_ = false;  // TakeStarted() has not returned it yet
  // What came while the workers were being started, in this order.
  std::vector<int> deferred_signals_;   // to their groups
  std::vector<int> deferred_forwards_;  // to them alone
  WorkerEvidence evidence_;
  std::function<std::vector<RanksInPlace>(int local_rank)> on_ended_;
  // Looked at with each SIGCHLD: dead, but traced by a process that has not taken its end yet; or
  // its pidfd cannot be watched.
  std::set<int> held_;
  bool round_live_ = false;  // from Spawn() to AllGone
  // All workers have ended, and what they left behind is being killed: until then at the latest,
  std::optional<TimePoint> sweep_deadline_;
  // and looked at again then.
  std::optional<TimePoint> next_sweep_;
  bool awaits_evidence_ = false;  // nothing is left of the round but what is being read of its ends
};

}  // namespace ddprun
