// SPDX-License-Identifier: Apache-2.0
// Collects the nodes that the rendezvous service in this process has refused: for node 0's console,
// where an operator looks first, as one line per interval, and for the event log as one event each.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "rendezvous/service/run.h"

namespace ddprun {

class Refusals final : public RunWatcher {
 public:
  struct Refused {
    std::string run_id;
    RunNotice note;
  };

  // Also forwards everything to `next`, unless it is null. `wake` is called, on any thread and
  // under a run's lock, when there is something to take. Before the service is started.
  void Begin(RunWatcher* next, std::function<void()> wake);

  void OnNotice(const std::string& run_id, const RunNotice& note) override;
  void OnStoreOperations(const std::string& run_id, std::size_t count) override;
  void OnStep(const RunState& before, const MembershipEvent& event, TimePoint now) override;

  // Those since the last call, at most kRefusalsMax; further ones are only counted.
  std::vector<Refused> TakeAll();
  // The line to show now: the last refusal, at most once per kRefusalInterval, with the number of
  // refusals that were not shown.
  std::optional<std::string> TakeLine(TimePoint now);
  // When to call TakeLine() again; absent: after the next refusal.
  std::optional<TimePoint> NextDeadline();

 private:
  RunWatcher* next_ = nullptr;
  std::function<void()> wake_;
  absl::Mutex mutex_;
  std::vector<Refused> untaken_ ABSL_GUARDED_BY(mutex_);
  std::string unshown_ ABSL_GUARDED_BY(mutex_);  // the last one's text
  std::uint64_t unshown_count_ ABSL_GUARDED_BY(mutex_) = 0;
  TimePoint show_after_ ABSL_GUARDED_BY(mutex_){};
};

}  // namespace ddprun
