// SPDX-License-Identifier: Apache-2.0
// Asks a service to do something with a run, without gRPC types. The caller need not be a node.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "rendezvous/client/session_client.h"
#include "rendezvous/membership/operator_rules.h"

namespace ddprun {

// Each ends within `timeout` with a sentence of what happens now. `run_id` empty: the only run.
// Errors, each one whole sentence: those of the service (RunRegistry::Stop() and Drain()) and those
// of an unreached one, as GetStatus() (status_client.h) has them.
absl::StatusOr<std::string> StopRun(const std::shared_ptr<ServiceChannel>& channel,
                                    const std::string& run_id, const StopRequest& request,
                                    std::chrono::milliseconds timeout);
absl::StatusOr<std::string> DrainNode(const std::shared_ptr<ServiceChannel>& channel,
                                      const std::string& run_id, const DrainRequest& request,
                                      std::chrono::milliseconds timeout);

}  // namespace ddprun
