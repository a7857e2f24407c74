// SPDX-License-Identifier: Apache-2.0
// Reports to the service that a node's agent is dead. For the agent's warden: without gRPC types;
// gRPC starts with the first call.
#pragma once

#include <chrono>
#include <memory>

#include "absl/status/status.h"
#include "rendezvous/client/session_client.h"
#include "rendezvous/values/session_types.h"

namespace ddprun {

// Ends within `timeout`; retries if the connection was cut. UNAVAILABLE: the service is not
// reachable; the message has the reason. DEADLINE_EXCEEDED: it did not answer. Other errors are the
// service's (proto/ddprun.proto): it was reached, and there was nothing to do.
absl::Status ReportLoss(const std::shared_ptr<ServiceChannel>& channel, const LossReport& report,
                        std::chrono::milliseconds timeout);

}  // namespace ddprun
