// SPDX-License-Identifier: Apache-2.0
// A command beside the workers, such as that of --health-check. The agent's loop waits for its
// output and its end as for those of workers.
#pragma once

#include <chrono>
#include <csignal>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "launcher/base/poller.h"
#include "launcher/processes/spawn.h"
#include "rendezvous/base/clock.h"

namespace ddprun {

class SideCommand {
 public:
  struct Result {
    std::optional<Outcome> outcome;  // absent: it did not end in time, and was killed
    std::string output;              // the end of what it printed

    bool success() const { return outcome.has_value() && IsSuccess(*outcome); }
  };

  explicit SideCommand(std::chrono::milliseconds timeout) : timeout_(timeout) {}

  // `command`: for sh -c. `input`: on its stdin, at most what a pipe holds (64 KB). No result may
  // be awaited.
  void Begin(const std::string& command, const sigset_t& signal_mask, Poller& poller, TimePoint now,
             const std::string& input = "");
  // Call in each turn of the loop, which SIGCHLD and Source::kSideCommand begin.
  std::optional<Result> OnTurn(Poller& poller, TimePoint now);
  // Present while the result is awaited.
  std::optional<TimePoint> NextDeadline() const {
    // One that could not be started raises no SIGCHLD.
    return deadline_.has_value() && pid() == 0 ? TimePoint() : deadline_;
  }
  // Of the command, until it is reaped here; 0: none.
  pid_t pid() const { return processes_.IsLive(0) ? processes_.pid(0) : 0; }
  std::chrono::milliseconds timeout() const { return timeout_; }

 private:
  void Read(Poller& poller);
  void CloseOutput(Poller& poller);

  const std::chrono::milliseconds timeout_;
  ProcessSet processes_;  // at most one
  OwnedFd output_;
  std::string last_;
  std::optional<TimePoint> deadline_;
};

// "exited with code 3: no GPU": with the last line that it printed. Pure. `limit`: the flag of the
// timeout.
std::string WhyFailed(const SideCommand::Result& result, std::chrono::milliseconds timeout,
                      absl::string_view limit);

}  // namespace ddprun
