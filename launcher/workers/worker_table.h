// SPDX-License-Identifier: Apache-2.0
// The workers of this node by number, those of a round by local rank, parked ones from size() on:
// the process, the socket and the output of each, and what is known of it.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "launcher/base/poller.h"
#include "launcher/collectives/flight_recorder.h"
#include "launcher/output/log_mux.h"
#include "launcher/processes/progress_sockets.h"
#include "launcher/processes/spawn.h"
#include "launcher/workers/node_config.h"

namespace ddprun {

// What this agent has asked of a worker in its round, and how it found it then: a failed program
// may take longer to end than its peers take to fail without it.
enum class Asked {
  kNothing,
  kToLeave,       // it is told that the round is broken, or is to be signaled
  kToEnd,         // it got a signal
  kWhileEnding,   // likewise, when the kernel was already ending it
  kWhileFailing,  // likewise, when it had failed
};

struct Worker {
  std::string error_file;
  // The start of its process: its files are newer.
  std::chrono::system_clock::time_point started_on_wall;
  FlightFiles flight;
  bool can_be_kept = false;  // it has said so
  bool hears_notices = false;
  std::uint64_t notice_saved = 0;     // the last notice for which it has saved
  std::uint64_t notice_signaled = 0;  // the last notice for which it got the signal
  // In this round:
  bool carried = false;  // its process is older than the round
  bool left = false;     // it will not communicate in the round any more
  Asked asked = Asked::kNothing;
  std::string asked_by;  // who asked for its end, by a fault; empty: nobody
};

class WorkerTable {
 public:
  // Its ends_fd() and the workers' sockets and pipes wake the loop.
  WorkerTable(const NodeConfig& config, Poller& poller, Console& console);

  // The number of the round's workers, and with parked ones.
  int size() const { return config_.local_world_size(); }
  int count() const { return static_cast<int>(workers_.size()); }
  bool IsParked(int worker) const { return worker >= size(); }
  // A parked worker runs the program of this local rank.
  int StandsFor(int worker) const { return worker % size(); }
  // "rank 3", "a spare worker".
  std::string NameOf(int worker) const;
  Worker& operator[](int worker) { return workers_[Index(worker)]; }
  const Worker& operator[](int worker) const { return workers_[Index(worker)]; }

  bool IsLive(int worker) const { return processes_.IsLive(Index(worker)); }
  // It is in the round, and stays only if it is kept.
  bool IsRunning(int worker) const {
    return IsLive(worker) && !IsParked(worker) && !(*this)[worker].left;
  }
  bool AllCanBeKept() const;
  bool AllSucceeded() const;
  // Those that live on without the round, by number.
  std::vector<bool> Kept() const;
  bool AnyKept() const;
  bool HasProcess(pid_t pid) const;
  // Absent: it could not be started.
  std::optional<pid_t> pid(int worker) const;
  // Valid until the worker has ended; -1: there are no pidfds here.
  int pidfd(int worker) const { return processes_.pidfd(Index(worker)); }
  // Absent while it runs.
  const std::optional<Outcome>& outcome(int worker) const {
    return processes_.outcome(Index(worker));
  }
  // Its outcome, if it has ended; does not reap it.
  std::optional<Outcome> Look(int worker) const { return processes_.Look(Index(worker)); }
  const rlimit& file_limit() const { return processes_.file_limit(); }
  ProgressSockets& progress() { return progress_; }
  LogMux& logs() { return log_mux_; }

  void BeginRound(int rank_first);
  // The number has no process any more, or none yet.
  void Vacate(int worker);
  // The process lives on in the next round.
  void Carry(int worker);
  // Takes over a process that a Spawner has started: watches its output, its reports and its end.
  void Adopt(int worker, Spawned spawned);
  // The parked worker takes the place of that rank.
  void Replace(int local_rank, int spare);
  void SignalGroup(int worker, int signal) { processes_.SignalGroup(Index(worker), signal); }
  void SignalProcess(int worker, int signal) { processes_.SignalProcess(Index(worker), signal); }

  // Readable when a worker has ended: Source::kWorkerEnd.
  int ends_fd() const { return ends_.fd(); }
  // Some that have ended, in the order of their deaths.
  std::vector<Ready> TakeEnds() { return ends_.Wait(TimePoint{}); }
  // Workers whose end only SIGCHLD tells of. Their order of death is not known: that of numbers.
  std::set<int> held() const { return held_; }
  // False: it has not ended, or a debugger holds it.
  bool Reap(int worker, bool spares_group);

  // Prints a sentence.
  void Print(const std::string& sentence);
  void ReportMissingProgress(const std::string& why);
  // A process that SIGKILL has not ended, and why.
  void ReportStuck(pid_t pid, std::chrono::seconds after_kill);

 private:
  static std::size_t Index(int worker) { return static_cast<std::size_t>(worker); }
  void Watch(int worker);
  void Unwatch(int worker);
  void EndUnwatched(int worker, const std::string& why);

  const NodeConfig& config_;
  Poller& poller_;
  Console& console_;
  LogMux log_mux_;
  int rank_first_ = 0;
  std::vector<Worker> workers_;
  ProcessSet processes_;
  ProgressSockets progress_;
  // The workers' pidfds. The kernel returns ready ones in the order in which they became ready, and
  // so dead workers in their order of death.
  Poller ends_;
  // Checked on each SIGCHLD: dead, but traced by a process that has not reaped it yet; or there is
  // no pidfd, or it cannot be watched.
  std::set<int> held_;
};

}  // namespace ddprun
