// SPDX-License-Identifier: Apache-2.0
// Events as lines of JSON in a file. Whoever writes never waits: a thread of its own does, and what
// it cannot write (a full disk, a pipe that nobody reads) is dropped, counted, and said once it can
// write again.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "rendezvous/run_event.h"

namespace ddprun {

// Threadsafe.
class EventLog {
 public:
  // `path`: a file, which is appended to, or "-" for stdout. UNAVAILABLE if it cannot be opened:
  // one sentence.
  static absl::StatusOr<std::unique_ptr<EventLog>> Open(const std::string& path);

  // Writes what is left for at most kEventLogCloseTimeout.
  ~EventLog();

  void Write(const RunEvent& event);

 private:
  struct Shared;
  explicit EventLog(std::shared_ptr<Shared> shared);
  static void WriteUntilClosed(const std::shared_ptr<Shared>& shared);
  const std::shared_ptr<Shared> shared_;
};

}  // namespace ddprun
