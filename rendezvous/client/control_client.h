// SPDX-License-Identifier: Apache-2.0
// Asks a service for its status, or to act on a run, without gRPC types. The caller need not be a
// node of any run.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "rendezvous/membership/operator_rules.h"
#include "rendezvous/observe/run_status.h"
#include "rendezvous/wire/service_channel.h"

namespace ddprun {

struct ServiceStatus {
  std::string software_version;
  std::vector<RunStatus> runs;  // by name
};

// Each call ends within `timeout`. Errors are whole sentences. UNAVAILABLE, DEADLINE_EXCEEDED: the
// service was not reached. FAILED_PRECONDITION: what answers and the credentials do not fit.

// The status of one run, or of all if `run_id` is empty. NOT_FOUND: there is no such run.
// `with_ranks`: NodeStatus::rank_reports too.
absl::StatusOr<ServiceStatus> GetStatus(const std::shared_ptr<ServiceChannel>& channel,
                                        const std::string& run_id,
                                        std::chrono::milliseconds timeout, bool with_ranks = false);

// A sentence that says what happens now. `run_id` empty: the only run. Other errors are those of
// RunRegistry::Stop() and Drain().
absl::StatusOr<std::string> StopRun(const std::shared_ptr<ServiceChannel>& channel,
                                    const std::string& run_id, const StopRequest& request,
                                    std::chrono::milliseconds timeout);
absl::StatusOr<std::string> DrainNode(const std::shared_ptr<ServiceChannel>& channel,
                                      const std::string& run_id, const DrainRequest& request,
                                      std::chrono::milliseconds timeout);

// Makes the service, which stands by, lead. FAILED_PRECONDITION also: it cannot, and why.
absl::StatusOr<std::string> Promote(const std::shared_ptr<ServiceChannel>& channel,
                                    const std::string& by, bool force,
                                    std::chrono::milliseconds timeout);

// Injects a fault, and returns when it was carried out; or reads the stacks of a worker
// (FaultKind::kStacks). Other errors are those of Run::Inject(); FAILED_PRECONDITION also: the run
// has no secret, which a fault needs.
absl::StatusOr<FaultReport> InjectFault(const std::shared_ptr<ServiceChannel>& channel,
                                        const std::string& run_id, const FaultRequest& request,
                                        std::chrono::milliseconds timeout);

// Reports that a node's agent is dead; for the agent's warden. Retries if the connection was cut.
// UNAVAILABLE: the message has the reason. NOT_FOUND also: nothing listens, so the service has
// ended. Other errors than DEADLINE_EXCEEDED are the service's (proto/ddprun.proto): it was
// reached, and there was nothing to do.
absl::Status ReportLoss(const std::shared_ptr<ServiceChannel>& channel, const LossReport& report,
                        std::chrono::milliseconds timeout);

}  // namespace ddprun
