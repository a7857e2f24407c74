// SPDX-License-Identifier: Apache-2.0
// Records the events of a service's runs, for the event log and the metrics.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "rendezvous/observe/event_log.h"
#include "rendezvous/observe/run_event.h"

namespace ddprun {

// Counters of one run id, since the start of the service.
struct RunCounters {
  std::uint64_t rounds = 0;
  std::uint64_t restarts = 0;
  std::uint64_t nodes_joined = 0;
  std::uint64_t nodes_lost = 0;
  std::uint64_t nodes_drained = 0;
  std::uint64_t notices = 0;
  std::map<std::string, std::uint64_t> failures;  // rounds that broke, by kind
  std::map<int, std::uint64_t> worker_exits;      // of the workers that broke them, by exit code
  std::uint64_t store_operations = 0;             // as nodes have sent them
  std::uint64_t finished = 0;                     // runs of that name
  double rendezvous_seconds = 0;                  // of the rounds, from their forming
  std::uint64_t rendezvous_count = 0;
  TimePoint forming{};    // of the round that forms
  TimePoint last_seen{};  // the last note or operation
};

// Threadsafe.
class RunObserver final : public RunWatcher {
 public:
  // Null: no log.
  explicit RunObserver(std::unique_ptr<EventLog> log) : log_(std::move(log)) {}

  void OnNotice(const std::string& run_id, const RunNotice& note) override;
  void OnStoreOperations(const std::string& run_id, std::size_t count) override;

  std::map<std::string, RunCounters> Counters();

 private:
  // Bounded, since a service may live for years: above kCountedRunsMax the run that has been silent
  // for longest is dropped.
  RunCounters& CountersOf(const std::string& run_id, TimePoint now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::unique_ptr<EventLog> log_;
  absl::Mutex mutex_;
  std::map<std::string, RunCounters> counters_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ddprun
