// SPDX-License-Identifier: Apache-2.0
// What each worker is started with: its program, arguments, environment, CPUs and stdin. Opens the
// socket over which it reports.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "launcher/output/console.h"
#include "launcher/processes/spawn.h"
#include "launcher/workers/node_config.h"
#include "launcher/workers/worker_table.h"
#include "proto/round_message.h"
#include "proto/worker_env.h"
#include "rendezvous/values/session_types.h"

namespace ddprun {

class WorkerRequests {
 public:
  // All must outlive this object.
  WorkerRequests(const NodeConfig& config, WorkerTable& table, const Console& console);

  // `network`: variables of the round's workers, NAME=VALUE.
  void BeginRound(const Start& start, const std::vector<std::string>& network);
  const Start& start() const { return start_; }

  // For workers of the round. `ends` are those of all local ranks.
  std::vector<SpawnRequest> ForRanks(const std::vector<int>& local_ranks,
                                     const std::vector<LogMux::WriteEnds>& ends, int cgroup);
  // For a worker that is kept: what a new one would find in its environment, but for what is the
  // process' own.
  RoundBegins ForKept(int local_rank) const;
  // For a parked worker. No two may have the same `name`. UNAVAILABLE: it has no socket.
  absl::StatusOr<SpawnRequest> ForSpare(int worker, const std::string& name,
                                        const LogMux::WriteEnds& ends, int cgroup);
  // A parked worker could not take its place: it runs the program alone, and has no stdin.
  bool NeedsOwnStart(int local_rank) const;

  bool has_roles() const { return roles_.size() > 1; }
  const std::string& RoleOf(int local_rank) const;
  // Its role, where ranks are counted by role; else empty.
  std::string CountingRole(int local_rank) const;
  bool IsWrapped(int local_rank) const;
  // The workers of this round say where they are among collectives.
  bool watches_collectives() const { return watches_collectives_; }

 private:
  WorkerEnv EnvironmentOf(int worker) const;
  SpawnRequest ForRank(int local_rank, const LogMux::WriteEnds& ends, int cgroup);
  SpawnRequest Base(int worker, const Place& place, std::vector<std::string> environ,
                    const LogMux::WriteEnds& ends, int cgroup) const;
  void FitToRank(int local_rank, SpawnRequest& request) const;
  bool WriteWatch() const;
  std::string WatchFolder() const { return config_.temp_dir + "/collective_watch"; }
  bool HasStdin(int rank) const;
  const WorkerWrap* WrapOf(int local_rank) const;

  const NodeConfig& config_;
  WorkerTable& table_;
  const Console& console_;
  const OwnedFd no_stdin_;                // of workers that have none; not valid: all have ddprun's
  const std::vector<RoleWorkers> roles_;  // in the order of local ranks
  Start start_;
  std::vector<std::string> network_;
  bool watches_collectives_ = false;
};

}  // namespace ddprun
