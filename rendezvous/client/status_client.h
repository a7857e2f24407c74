// SPDX-License-Identifier: Apache-2.0
// Asks a service what it knows, without gRPC types. The caller need not be a node of any run.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "rendezvous/client/session_client.h"
#include "rendezvous/membership/run_status.h"

namespace ddprun {

struct ServiceStatus {
  std::string software_version;
  std::vector<RunStatus> runs;  // by name
};

// Of one run, or of all if `run_id` is empty. Ends within `timeout`. NOT_FOUND: there is no such
// run. UNAVAILABLE, DEADLINE_EXCEEDED: the service was not reached. FAILED_PRECONDITION: what
// answers and the credentials do not fit. Each is one whole sentence.
absl::StatusOr<ServiceStatus> GetStatus(const std::shared_ptr<ServiceChannel>& channel,
                                        const std::string& run_id,
                                        std::chrono::milliseconds timeout);

}  // namespace ddprun
