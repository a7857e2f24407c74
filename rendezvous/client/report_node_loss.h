// SPDX-License-Identifier: Apache-2.0
// Tells the service that a node's agent is dead. For the agent's warden: without gRPC types, and
// without a gRPC that runs before.
#pragma once

#include <chrono>
#include <memory>

#include "absl/status/status.h"
#include "rendezvous/client/session_client.h"
#include "rendezvous/values/session_types.h"

namespace ddprun {

// Ends within `timeout`; one that is cut off is tried again. UNAVAILABLE: the service is not there,
// with the reason in words; DEADLINE_EXCEEDED: it did not answer. The others are the service's
// (proto/ddprun.proto): it was reached, and there was nothing to do.
absl::Status ReportLoss(const std::shared_ptr<ServiceChannel>& channel, const LossReport& report,
                        std::chrono::milliseconds timeout);

}  // namespace ddprun
