// SPDX-License-Identifier: Apache-2.0
// Events as lines of JSON in a file. Callers never wait: a thread writes, and events that it cannot
// write (a full disk, a pipe without a reader) are dropped and counted. `Notify` is called when
// that begins and when it ends; the log gets the number of dropped events once it can be written
// again.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "rendezvous/observe/run_event.h"

namespace ddprun {

// Threadsafe.
class EventLog {
 public:
  // Called on any thread, with one sentence for people; also after the log's destruction, where a
  // disk hangs.
  using Notify = std::function<void(const std::string& sentence)>;

  // `path`: a file, which is appended to, or "-" for stdout. UNAVAILABLE if it cannot be opened, or
  // not in kEventLogOpenTimeout: one sentence.
  static absl::StatusOr<std::unique_ptr<EventLog>> Open(const std::string& path,
                                                        Notify notify = nullptr);

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
