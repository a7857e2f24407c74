// SPDX-License-Identifier: Apache-2.0
// gRPC's own protocols for tools that know nothing of ddprun: health (grpc.health.v1, for probes
// and load balancers) and reflection (for grpcurl). Both need a certificate of the run like any
// other call.
#pragma once

#include <grpcpp/grpcpp.h>

namespace ddprun {

// Before BuildAndStart().
void AddHealthAndReflection(grpc::ServerBuilder& builder);

// After it: reports the server and each of its services as serving.
void SayServing(grpc::Server& server);

}  // namespace ddprun
