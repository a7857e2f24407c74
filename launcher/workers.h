// SPDX-License-Identifier: Apache-2.0
// The workers of one round on this node: their processes and what they say, as one thing to start,
// watch and stop.
#pragma once

#include <csignal>
#include <string>
#include <vector>

#include "launcher/log_mux.h"
#include "launcher/oom_watch.h"
#include "launcher/poller.h"
#include "launcher/process_set.h"
#include "launcher/program.h"
#include "launcher/supervisor.h"

namespace ddprun {

class Workers {
 public:
  // The same for all rounds.
  struct Config {
    Program program;
    int local_world_size = 1;
    int cpus = 1;
    std::string role;
    std::string host;
    std::string temp_dir;
    std::string log_dir;       // empty: no files
    std::string agent_socket;  // empty: no store for the workers
    sigset_t signal_mask;      // the workers start with it
  };

  Workers(Config config, Poller& poller, Console& console)
      : config_(std::move(config)), poller_(poller), console_(console), log_mux_(console) {}

  // Starts the round's workers. What comes of it at once (a program that cannot be started) is
  // appended to `events`.
  void Spawn(const Start& start, TimePoint now, std::vector<Event>& events);

  // None of the round's workers starts, for one reason.
  void FailToSpawn(const std::string& reason, std::vector<Event>& events);

  // Whoever has ended before is told as such first: what ends now is this agent's doing.
  void Signal(int signal, TimePoint now, std::vector<Event>& events);

  // Readable when a worker has ended: Source::kWorkerEnd.
  int ends_fd() const { return ends_.fd(); }

  // Something of worker `ready.worker` is ready. Ends are appended to `events`.
  void OnReady(const Ready& ready, TimePoint now, std::vector<Event>& events);

  // SIGCHLD: an orphan of a worker may have ended.
  void ReapOrphansOfWorkers();

  // Reads pipes only while the console keeps up.
  void UpdateBackpressure(TimePoint now);

 private:
  std::vector<LogMux::Worker> LogWorkers(const Start& start) const;
  std::string ErrorFile(const Start& start, int local_rank) const;
  std::string LogFolder(const Start& start, int local_rank) const;
  WorkerEnded MakeEnded(int local_rank, TimePoint now) const;
  void TakeEnded(TimePoint now, std::vector<Event>& events);
  bool HasSaidThatItFailed(int local_rank) const;
  void FinishIfAllGone(TimePoint now, std::vector<Event>& events);
  void SetReading(bool reading);

  const Config config_;
  Poller& poller_;
  Console& console_;
  LogMux log_mux_;
  ProcessSet processes_;
  // Of the workers' pidfds alone. The kernel hands ready ones out in the order in which they became
  // so, thus the dead in their order of dying.
  Poller ends_;
  // By local rank: this agent's signal reached it while it was well.
  std::vector<bool> stopped_;
  // Likewise: it had failed before that signal, and was only slow to end.
  std::vector<bool> was_failing_;
  OomWatch oom_watch_;
  Start start_;
  TimePoint started_;
  bool round_live_ = false;  // from Spawn() to AllGone
  bool reading_ = false;     // the pipes are in the poller
};

}  // namespace ddprun
