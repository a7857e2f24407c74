// SPDX-License-Identifier: Apache-2.0
// Asks workers to end, and knows afterwards which ends this agent has caused.
#pragma once

#include <set>
#include <vector>

#include "launcher/base/outcome.h"
#include "launcher/workers/node_config.h"
#include "launcher/workers/worker_requests.h"
#include "launcher/workers/worker_table.h"

namespace ddprun {

class StopSignals {
 public:
  // All must outlive this object.
  StopSignals(const NodeConfig& config, WorkerTable& table, const WorkerRequests& requests)
      : config_(config), table_(table), requests_(requests) {}

  void BeginRound() { sent_.clear(); }

  // Sends the signal to each worker that has had none, SIGKILL to each, as --signal-scope says.
  // `keep`: workers that can be kept are told that the round is broken instead, and those that have
  // left it or are parked stay.
  void Send(int signal, bool keep);
  // SIGKILL to one worker's process group.
  void Kill(int local_rank);

  // That end is this agent's doing.
  bool Caused(int worker, const Outcome& outcome) const;

 private:
  std::vector<bool> WorkersWithRecord() const;
  Asked StateOf(int worker, bool has_record) const;
  bool SignalsGroup(int worker, int signal) const;

  const NodeConfig& config_;
  WorkerTable& table_;
  const WorkerRequests& requests_;
  std::set<int> sent_;  // in this round
};

}  // namespace ddprun
