// SPDX-License-Identifier: Apache-2.0
// Nodes that the rendezvous service in this process has refused: one line at a time for node 0's
// console, where an operator looks first, and each as an event.
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

  // Those since the last call; kRefusalsMax at most, the rest is only counted.
  std::vector<Refused> TakeAll();
  // What to show now: the last one, at most once in kRefusalInterval, with the number of those that
  // were not shown.
  std::optional<std::string> TakeLine(TimePoint now);
  // When to ask again; absent: once there is more.
  std::optional<TimePoint> NextDeadline();

 private:
  RunWatcher* next_ = nullptr;
  std::function<void()> wake_;
  absl::Mutex mutex_;
  std::vector<Refused> untaken_ ABSL_GUARDED_BY(mutex_);
  std::string unshown_ ABSL_GUARDED_BY(mutex_);  // the last one's words
  std::uint64_t unshown_count_ ABSL_GUARDED_BY(mutex_) = 0;
  TimePoint show_after_ ABSL_GUARDED_BY(mutex_){};
};

}  // namespace ddprun
