// SPDX-License-Identifier: Apache-2.0
// The error sentence for a single call to a service that failed.
#pragma once

#include <chrono>

#include "absl/status/status.h"
#include "rendezvous/wire/grpc_channel.h"

namespace ddprun {

// One whole sentence. UNAVAILABLE, DEADLINE_EXCEEDED: the service was not reached.
// FAILED_PRECONDITION: the credentials do not fit what answers, or it does not know this call.
// Otherwise: the service's own status.
absl::Status CallError(const ServiceChannel& channel, const grpc::Status& status,
                       std::chrono::milliseconds timeout);

}  // namespace ddprun
