// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>

#include "rendezvous/membership/membership.h"

namespace ddprun {

// Receives the events of all runs, for the event log and the metrics.
class RunWatcher {
 public:
  virtual ~RunWatcher() = default;
  // Called under the run's lock, in the order of what happens; must only record it. `run_id`
  // empty: of no run.
  virtual void OnNotice(const std::string& run_id, const RunNotice& note) = 0;
  // Likewise: operations of the store that nodes have sent.
  virtual void OnStoreOperations(const std::string& run_id, std::size_t count) = 0;
};

}  // namespace ddprun
