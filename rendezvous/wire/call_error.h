// SPDX-License-Identifier: Apache-2.0
// What to tell a person whose one call to a service did not succeed.
#pragma once

#include <chrono>

#include "absl/status/status.h"
#include "rendezvous/wire/grpc_channel.h"

namespace ddprun {

// One whole sentence. UNAVAILABLE, DEADLINE_EXCEEDED: the service was not reached.
// FAILED_PRECONDITION: what answers and the credentials do not fit, or it does not know this call.
// Everything else: the service's own words.
absl::Status CallError(const ServiceChannel& channel, const grpc::Status& status,
                       std::chrono::milliseconds timeout);

}  // namespace ddprun
