// SPDX-License-Identifier: Apache-2.0
// The runs of a service by their names. A run begins with the first node that joins under its name
// and is forgotten when it is over and all its streams have ended: the name is free again then.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "rendezvous/base/deadline_timer.h"
#include "rendezvous/journal/service_journal.h"
#include "rendezvous/service/run.h"

namespace ddprun {

// NOT_FOUND, as a sentence.
absl::Status UnknownRun(absl::string_view run_id);

class RunRegistry {
 public:
  struct Place {
    std::shared_ptr<Run> run;
    LinkId link;
  };

  // With a journal, the runs that are in it are there from the beginning.
  explicit RunRegistry(std::optional<std::string> default_run_id,
                       std::unique_ptr<ServiceJournal> journal = nullptr,
                       RunWatcher* watcher = nullptr);

  // Finds or creates the run and adds the stream to it; the caller then calls Run::Joined().
  // `peer`: an address or a certificate, whose runs are counted together; empty: this process.
  // INVALID_ARGUMENT: no run id, and the service has no default. RESOURCE_EXHAUSTED: too many runs,
  // of all or of that peer.
  absl::StatusOr<Place> Admit(const Join& join, std::shared_ptr<DirectiveSink> sink,
                              const std::string& peer = "",
                              TimePoint now = std::chrono::steady_clock::now());

  // A peer at `address` was rejected before it joined any run.
  void Refused(const std::string& address, const absl::Status& why);

  // A node's stream has ended.
  void Closed(const Place& place);

  // A node's agent is dead. NOT_FOUND: there is no such run, or no such node in it.
  absl::Status Lost(const LossReport& report, TimePoint now);

  // Returns the status of one run, or of all by name if `run_id` is empty; kStatusNodesMax nodes at
  // most. NOT_FOUND: there is no such run.
  absl::StatusOr<std::vector<RunStatus>> Status(const std::string& run_id, TimePoint now,
                                                bool with_ranks = false);

  // An operator's request; an empty `run_id` means the only run. Returns what happens now, as a
  // sentence. Errors: those of operator_rules.h. NOT_FOUND: there is no run of that name, or
  // none at all. INVALID_ARGUMENT: no name, and there are several.
  absl::StatusOr<std::string> Stop(const std::string& run_id, const StopRequest& request,
                                   TimePoint now);
  absl::StatusOr<std::string> Drain(const std::string& run_id, const DrainRequest& request,
                                    TimePoint now);

  // Whether its runs outlive this process.
  bool durable() const { return journal_ != nullptr; }

  // The run that a watcher means; errors as above.
  absl::StatusOr<std::shared_ptr<Run>> FindForOperator(const std::string& run_id);

  // Null if there is no such run.
  std::shared_ptr<Run> Find(const std::string& run_id);

  // Looks at once whether the journal wants a snapshot.
  void CheckJournal() { timer_.Arm(std::chrono::steady_clock::now()); }

  // Waits until the nodes of all runs that are over, or about to be, have received their verdict.
  void WaitUntilDrained(std::chrono::milliseconds timeout);

 private:
  std::optional<TimePoint> Tick(TimePoint now);
  void Forget(const std::shared_ptr<Run>& run) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ForgetIfDrained(const std::shared_ptr<Run>& run) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void TakeSnapshot() ABSL_LOCKS_EXCLUDED(mutex_);
  // OK, or why there is no room for another run.
  absl::Status MakeRoomFor(const std::string& peer, TimePoint now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool AnyEnding() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::optional<std::string> default_run_id_;
  const std::unique_ptr<ServiceJournal> journal_;
  RunWatcher* const watcher_;

  absl::Mutex mutex_;  // taken before a run's own
  absl::CondVar run_removed_;
  absl::flat_hash_map<std::string, std::shared_ptr<Run>> runs_ ABSL_GUARDED_BY(mutex_);
  // Over, and another run has their name; some of their nodes have not received their verdict yet.
  std::vector<std::shared_ptr<Run>> replaced_ ABSL_GUARDED_BY(mutex_);

  DeadlineTimer timer_;  // last: its thread uses all of the above
};

}  // namespace ddprun
