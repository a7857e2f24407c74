// SPDX-License-Identifier: Apache-2.0
// `ddpctl logs`, and the wait of `ddpctl stop --wait`: both subscribe to a run at its service.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "launcher/ctl/ctl_options.h"
#include "rendezvous/client/watch_client.h"

namespace ddprun {

// Prints the lines so far, with -f until the run ends. Prints errors on stderr. The exit code.
int ShowLogs(const CtlOptions& options, const std::shared_ptr<ServiceChannel>& channel);

// Subscribes to the end of the run. Returns when the subscription is active, so that no later event
// is missed. Errors: as RunWatch::Next().
struct EndWatch {
  std::unique_ptr<RunWatch> watch;
  std::string run_id;
};
absl::StatusOr<EndWatch> WatchEnd(const CtlOptions& options,
                                  const std::shared_ptr<ServiceChannel>& channel);

// DEADLINE_EXCEEDED: the run has not ended within options.wait_timeout.
absl::StatusOr<RunOver> WaitForEnd(const CtlOptions& options, EndWatch& end);

}  // namespace ddprun
