// SPDX-License-Identifier: Apache-2.0
// What tools that know nothing of ddprun may ask the service, by gRPC's own protocols: whether it
// serves (grpc.health.v1, for probes and load balancers) and what it speaks (reflection, for
// grpcurl). Both are calls like any other: whoever has no certificate of the run gets no answer.
#pragma once

#include <grpcpp/grpcpp.h>

namespace ddprun {

// Before BuildAndStart().
void AddHealthAndReflection(grpc::ServerBuilder& builder);

// After it: of the service as a whole and of each of its parts by name.
void SayServing(grpc::Server& server);

}  // namespace ddprun
