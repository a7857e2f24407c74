// SPDX-License-Identifier: Apache-2.0
// Starts, watches and stops the workers of this node: their processes and their output. A worker
// that can be kept (proto/round_message.h) may live for several rounds. Holds together the pieces
// that do it (launcher/README.md).
#pragma once

#include <chrono>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "launcher/base/background.h"
#include "launcher/base/poller.h"
#include "launcher/collectives/flight_recorder.h"
#include "launcher/hang/hang_watch.h"
#include "launcher/output/log_mux.h"
#include "launcher/processes/fork_server.h"
#include "launcher/processes/oom_watch.h"
#include "launcher/supervisor/supervisor.h"
#include "launcher/workers/autopsy.h"
#include "launcher/workers/node_config.h"
#include "launcher/workers/round_start.h"
#include "launcher/workers/spare_pool.h"
#include "launcher/workers/stop_signals.h"
#include "launcher/workers/sweep.h"
#include "launcher/workers/worker_evidence.h"
#include "launcher/workers/worker_notices.h"
#include "launcher/workers/worker_requests.h"
#include "launcher/workers/worker_table.h"

namespace ddprun {

class Workers {
 public:
  // `config` and `background` must outlive the workers. Its fd() wakes the loop, which calls
  // OnTurn().
  Workers(const NodeConfig& config, Poller& poller, Console& console, const Background& background);
  ~Workers() { EndForkServer(); }

  // Begins the round: tells it to the workers that were kept, gives parked ones to the vacant
  // ranks, and begins to start the others; `network`: variables for them, NAME=VALUE. OnTurn()
  // continues, since the disks of log files and program may be slow.
  void Spawn(const Start& start, const std::vector<std::string>& network, TimePoint now,
             std::vector<Event>& events);

  // Parks as many workers as this node has ranks; the node is in no round.
  void Prepare() { spares_.Prepare(); }

  void OnTurn(TimePoint now, std::vector<Event>& events);

  // True once per round, when its workers were started as far as possible. The output of new ones
  // is not read before.
  bool TakeStarted() { return std::exchange(newly_started_, false); }

  // Reports that the round's workers that are not there yet cannot be started.
  void FailToSpawn(const std::string& reason, TimePoint now, std::vector<Event>& events);

  const WorkerTable& table() const { return table_; }
  LogMux& logs() { return table_.logs(); }
  WorkerNotices& notices() { return notices_; }
  // What the round's workers report; the ends of workers are noted there.
  HangWatch& hang_watch() { return hang_watch_; }

  // Its next end is wanted by somebody: the failure says by whom.
  void SetAskedBy(int local_rank, const std::string& by) { table_[local_rank].asked_by = by; }
  bool HasRoles() const { return requests_.has_roles(); }
  std::chrono::milliseconds AgeAt(TimePoint now) const {
    return std::chrono::duration_cast<std::chrono::milliseconds>(now - round_started_);
  }
  // The file for the stacks of a hung worker; empty: the round has no files.
  std::string StacksFile(int local_rank) const {
    return round_start_.RankFile(local_rank, "stacks.txt");
  }
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

  // Asks all workers to end: see StopSignals::Send(). Workers that have ended before are reported
  // first: later ends are caused by this agent.
  void Stop(int signal, bool keep, TimePoint now, std::vector<Event>& events);

  // Sends a signal to each worker, not to its group: its helper processes (a data loader, a shell's
  // child) have no handler and would be killed.
  void Forward(int signal);

  // Sends SIGKILL to all, and to all other processes in their cgroup. `keep` as above.
  void Kill(bool keep, TimePoint now, std::vector<Event>& events);

  // Handles a ready descriptor of worker `ready.worker`. Appends ends to `events`.
  void OnReady(const Ready& ready, TimePoint now, std::vector<Event>& events);

  // Handles SIGCHLD: an orphan of a worker may have ended, or a debugger may have released a dead
  // worker.
  void OnChildEnded(TimePoint now, std::vector<Event>& events);

  // The latest time for the next OnTurn().
  std::optional<TimePoint> NextDeadline() const;

  // Prints the workers that have not ended long after SIGKILL, and why.
  void ReportStuck();
  // The agent's own processes are no strangers (Sweep).
  void Spare(const std::array<pid_t, 3>& own) { sweep_.Spare(own); }

  // From Spawn() until nothing of the round is left.
  bool round_live() const { return round_live_; }

  // No worker will be started any more.
  void EndForkServer();

 private:
  // Since Spawn().
  enum class Stopping {
    kNo,
    kKeeping,  // workers that can be kept live on
    kAll,      // the run ends
  };
  struct DeferredStop {
    int signal = 0;
    bool keep = false;
  };

  SparePool::Node NodeState() const;
  void ContinueSpawn(TimePoint now, std::vector<Event>& events);
  void OnStarted(std::vector<RoundStart::Started> started, TimePoint now,
                 std::vector<Event>& events);
  std::optional<ProgressMessage> ReadMessage(int worker);
  void OnLeft(int local_rank, const ProgressMessage& message, TimePoint now,
              std::vector<Event>& events);
  void TakeEnded(TimePoint now, std::vector<Event>& events);
  void ReapHeld(TimePoint now, std::vector<Event>& events);
  bool ReapWorker(int worker, TimePoint now, std::vector<Event>& events);
  void AddEnded(int local_rank, std::optional<OomKill> oom, std::optional<double> cpu_seconds,
                TimePoint now, std::vector<Event>& events);
  void Examine(AutopsyEvent event, TimePoint now, std::vector<Event>& events);
  void FinishIfAllGone(TimePoint now, std::vector<Event>& events);

  const NodeConfig& config_;
  const Background& background_;
  Console& console_;
  WorkerTable table_;
  WorkerRequests requests_;
  const std::shared_ptr<ForkServer> fork_server_;  // absent without --preload
  Sweep sweep_;
  RoundStart round_start_;
  SparePool spares_;
  StopSignals stop_signals_;
  WorkerNotices notices_;
  HangWatch hang_watch_;
  Autopsy autopsy_;
  EvidenceReader evidence_;
  OomWatch oom_watch_;

  TimePoint round_started_;
  std::chrono::system_clock::time_point round_started_on_wall_;
  bool round_live_ = false;  // from Spawn() to AllGone
  Stopping stopping_ = Stopping::kNo;
  bool newly_started_ = false;    // not yet returned by TakeStarted()
  bool awaits_evidence_ = false;  // all processes of the round have ended
  // Requested while the workers were being started, in order.
  std::vector<DeferredStop> deferred_stops_;
  std::vector<int> deferred_forwards_;
};

}  // namespace ddprun
