// SPDX-License-Identifier: Apache-2.0
// Parked workers: processes without a rank that take the place of one that has ended, or of all
// ranks in the next round. They are started one at a time.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "launcher/base/background.h"
#include "launcher/processes/cgroup.h"
#include "launcher/processes/fork_server.h"
#include "launcher/processes/spawn.h"
#include "launcher/workers/node_config.h"
#include "launcher/workers/worker_requests.h"
#include "launcher/workers/worker_table.h"

namespace ddprun {

class SparePool {
 public:
  // What the node's workers do now.
  enum class Node {
    kIdle,     // no round runs: workers are parked if Prepare() asks for them
    kRunning,  // a round runs, and is not being stopped
    kBusy,     // a round is being started or stopped, or the run ends
  };

  // All must outlive this object. `fork_server`: absent without --preload.
  SparePool(const NodeConfig& config, WorkerTable& table, WorkerRequests& requests,
            WorkerCgroup& cgroup, const Background& background,
            std::shared_ptr<ForkServer> fork_server);

  // The node is in no round: parks as many workers as it has ranks.
  void Prepare();
  void BeginRound();

  // Begins to start a parked worker if one is wanted.
  void OnTurn(Node node);
  // The parked worker that has been started, if there is one. `kill`: it is not wanted any more.
  std::optional<int> TakeParked(bool kill);
  // Whether all workers can be kept, or, without a round, all that the node needs are parked, if
  // that has changed.
  std::optional<bool> TakeKeeping(Node node);

  // A parked worker that can take this rank's place. Absent: none.
  std::optional<int> ReadyFor(int local_rank) const;
  void Take(int local_rank, int spare);

  // A parked worker has said whether it can be kept.
  void OnReport() { failures_ = 0; }
  // A parked worker has ended. `asked`: as it should. It is in no round, so this is no failure of
  // one.
  void OnEnded(int worker, bool asked);

  bool IsStarting() const { return starting_.has_value() && !given_up_; }
  // All others of the round have ended. A spare that is just being started is waited for, since
  // only its spawner knows it from an orphan; but not for ever: the disk of its program may hang.
  bool WaitsForStart(TimePoint now);
  std::optional<TimePoint> NextDeadline() const { return deadline_; }
  // Does not start it, if it waits for something.
  void Cancel() { spawner_.Cancel(); }
  // It is killed with the orphans; should its spawner still return it, then it is killed as well.
  void GiveUp();

 private:
  int Wanted(Node node) const;
  bool AllAreReady() const;
  absl::Status Park(int worker);
  void Bind(int local_rank);

  const NodeConfig& config_;
  WorkerTable& table_;
  WorkerRequests& requests_;
  WorkerCgroup& cgroup_;
  Spawner spawner_;

  std::optional<int> starting_;  // the number of the one that is being started
  LogMux::WriteEnds ends_;       // its pipes
  OwnedFd cgroup_folder_;
  std::optional<TimePoint> deadline_;  // it is waited for
  bool given_up_ = false;
  bool prepares_ = false;        // between Prepare() and BeginRound()
  std::optional<bool> keeping_;  // as TakeKeeping() has returned it last
  int parked_ = 0;               // so far
  int failures_ = 0;             // in a row
};

}  // namespace ddprun
