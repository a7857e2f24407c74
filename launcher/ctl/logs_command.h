// SPDX-License-Identifier: Apache-2.0
// `ddpctl logs`, and the waiting of `ddpctl stop --wait`: both watch a run through its service.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "launcher/ctl/ctl_options.h"
#include "rendezvous/client/watch_client.h"

namespace ddprun {

// Prints until the run ends, or what there is. The exit code; errors are said on stderr.
int ShowLogs(const CtlOptions& options, const std::shared_ptr<ServiceChannel>& channel);

// A watch of nothing but the run's end, which has begun: whatever happens from now on is seen.
// Errors: as RunWatch::Next().
struct EndWatch {
  std::unique_ptr<RunWatch> watch;
  std::string run_id;
};
absl::StatusOr<EndWatch> WatchEnd(const CtlOptions& options,
                                  const std::shared_ptr<ServiceChannel>& channel);

// DEADLINE_EXCEEDED: the run has not ended within options.wait_timeout.
absl::StatusOr<RunOver> WaitForEnd(const CtlOptions& options, EndWatch& end);

}  // namespace ddprun
