// SPDX-License-Identifier: Apache-2.0
// Tells workers of a preemption: a machine of the run will be taken away. Each worker that says
// that it reads notices gets a message, and each that handles --notice-worker-signal gets it, once.
#pragma once

#include <optional>

#include "launcher/workers/node_config.h"
#include "launcher/workers/worker_table.h"
#include "rendezvous/values/session_types.h"

namespace ddprun {

class WorkerNotices {
 public:
  // Both must outlive this object.
  WorkerNotices(const NodeConfig& config, WorkerTable& table) : config_(config), table_(table) {}

  // How many of the round's workers run, and how many of them got the message.
  struct Reached {
    int running = 0;
    int reached = 0;
  };
  // The notice holds until `preemption` is over, or End().
  Reached Begin(const Preemption& preemption, TimePoint now);
  void End() { notice_.reset(); }

  // The worker has saved for that notice, of which it may have heard from a worker of another node
  // before this one's agent has. False: it has said so before.
  bool OnSaved(int worker, std::uint64_t number);
  // The number of the notice, once all workers that run have saved for it.
  std::optional<std::uint64_t> SavedByAll(TimePoint now) const;
  // The worker says that it reads notices. False: there is none, or it does not read it.
  bool Tell(int worker, TimePoint now);
  // Signals the workers that handle the signal by now, unless the round is over or being stopped.
  void Signal(bool round_runs, TimePoint now);
  std::optional<TimePoint> NextDeadline() const { return next_look_; }

 private:
  bool Stands(TimePoint now) const { return notice_.has_value() && deadline_ > now; }

  const NodeConfig& config_;
  WorkerTable& table_;
  std::optional<Preemption> notice_;
  TimePoint deadline_{};
  std::optional<TimePoint> next_look_;  // some workers do not handle the signal yet
};

}  // namespace ddprun
