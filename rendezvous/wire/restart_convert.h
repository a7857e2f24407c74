// SPDX-License-Identifier: Apache-2.0
// Converts the restart policy to its message and back.
#pragma once

#include "proto/ddprun.pb.h"
#include "rendezvous/values/session_types.h"

namespace ddprun {

v1::RestartPolicy ToProto(const RestartPolicy& policy);

// Values out of range are kept: the rules reject them.
RestartPolicy FromProto(const v1::RestartPolicy& message);

}  // namespace ddprun
