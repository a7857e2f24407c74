// SPDX-License-Identifier: Apache-2.0
// Converts a run's status to its message and back.
#pragma once

#include "proto/ddprun.pb.h"
#include "rendezvous/membership/run_status.h"

namespace ddprun {

v1::RunStatus ToProto(const RunStatus& status);
RunStatus FromProto(const v1::RunStatus& message);

}  // namespace ddprun
