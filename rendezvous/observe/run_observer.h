// SPDX-License-Identifier: Apache-2.0
// Passes on the events of a service's runs, and counts them for the metrics.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
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
  // Called under the run's lock: must only record the event.
  using Sink = std::function<void(const RunEvent&)>;
  // As RunWatcher::OnStep().
  using StepSink = std::function<void(const RunState&, const MembershipEvent&, TimePoint)>;
  // Null: events are only counted; steps are ignored.
  explicit RunObserver(Sink sink, StepSink step_sink = nullptr)
      : sink_(std::move(sink)), step_sink_(std::move(step_sink)) {}

  void OnNotice(const std::string& run_id, const RunNotice& note) override;
  void OnStoreOperations(const std::string& run_id, std::size_t count) override;
  void OnStep(const RunState& before, const MembershipEvent& event, TimePoint now) override {
    if (step_sink_ != nullptr) step_sink_(before, event, now);
  }

  std::map<std::string, RunCounters> Counters();

 private:
  // Bounded, since a service may live for years: above kCountedRunsMax the run that has been silent
  // for longest is dropped.
  RunCounters& CountersOf(const std::string& run_id, TimePoint now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Sink sink_;
  const StepSink step_sink_;
  absl::Mutex mutex_;
  std::map<std::string, RunCounters> counters_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ddprun
