// SPDX-License-Identifier: Apache-2.0
// Injects faults into the workers of this node, on purpose, and undoes those that last. For the
// agent's thread, which also reaps the workers: a pid that it has not reaped belongs to its worker.
#pragma once

#include <sys/resource.h>
#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "rendezvous/base/owned_fd.h"
#include "rendezvous/values/session_types.h"

namespace ddprun {

// A worker that was not reaped.
struct FaultyWorker {
  int rank = 0;
  pid_t pid = 0;
  int pidfd = -1;
};

class FaultInjector {
 public:
  FaultInjector() = default;
  ~FaultInjector() { UndoAll(); }
  FaultInjector(const FaultInjector&) = delete;
  FaultInjector& operator=(const FaultInjector&) = delete;

  // For the kinds that affect a worker. Returns what was done: "SIGKILL to rank 3 (pid 4711)".
  // FAILED_PRECONDITION, PERMISSION_DENIED: why it could not be.
  absl::StatusOr<std::string> Inject(const Fault& fault, const FaultyWorker& worker, TimePoint now);

  // Ends faults whose time is over. To be called at NextDeadline().
  void OnTurn(TimePoint now);
  std::optional<TimePoint> NextDeadline() const;
  void UndoAll();

 private:
  // A fault that lasts. It holds a pidfd, so that it never reaches another process; one of its own,
  // as a duplicate would stay in the poller that watches the worker's end.
  struct Lasting {
    FaultKind kind;
    pid_t pid = 0;
    OwnedFd pidfd;
    TimePoint until{};
    TimePoint next{};                  // of kSlow: the next change
    bool stopped = false;              // likewise
    rlimit limit{};                    // before
    std::vector<OwnedFd> connections;  // of kSlowNet
  };

  absl::Status Begin(Lasting& lasting, TimePoint now);
  static void Undo(const Lasting& lasting);

  std::vector<Lasting> lasting_;
};

}  // namespace ddprun
