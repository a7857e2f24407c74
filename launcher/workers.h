// SPDX-License-Identifier: Apache-2.0
// The workers of one round on this node: their processes and what they say, as one thing to start,
// watch and stop.
#pragma once

#include <csignal>
#include <string>
#include <vector>

#include "launcher/log_mux.h"
#include "launcher/log_plan.h"
#include "launcher/options_logs.h"
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
    LogOptions logs;
    std::string agent_socket;  // empty: no store for the workers
    sigset_t signal_mask;      // the workers start with it
  };

  Workers(Config config, Poller& poller, Console& console)
      : config_(std::move(config)),
        poller_(poller),
        console_(console),
        log_mux_(console, config_.logs.fold) {}

  // Starts the round's workers. What comes of it at once (a program that cannot be started) is
  // appended to `events`.
  void Spawn(const Start& start, TimePoint now, std::vector<Event>& events);

  // None of the round's workers starts, for one reason.
  void FailToSpawn(const std::string& reason, std::vector<Event>& events);

  void Signal(int signal) { processes_.SignalGroups(signal); }

  // Something of worker `ready.worker` is ready. Ends are appended to `events`.
  void OnReady(const Ready& ready, TimePoint now, std::vector<Event>& events);

  // SIGCHLD: an orphan of a worker may have ended.
  void ReapOrphansOfWorkers();

  // The workers' output, for what it is to be shown at a time and in order.
  LogMux& logs() { return log_mux_; }

 private:
  absl::Status StartLogs(std::vector<LogMux::WriteEnds>& write_ends);
  std::string ErrorFile(int local_rank) const;
  WorkerEnded MakeEnded(int local_rank, TimePoint now) const;
  void FinishIfAllGone(TimePoint now, std::vector<Event>& events);

  const Config config_;
  Poller& poller_;
  Console& console_;
  LogMux log_mux_;
  ProcessSet processes_;
  Start start_;
  LogRound log_round_;
  LogPlan log_plan_;
  TimePoint started_;
  bool round_live_ = false;  // from Spawn() to AllGone
};

}  // namespace ddprun
