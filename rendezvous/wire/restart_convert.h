// SPDX-License-Identifier: Apache-2.0
// What follows a failure, as a message and back.
#pragma once

#include "proto/ddprun.pb.h"
#include "rendezvous/values/session_types.h"

namespace ddprun {

v1::RestartPolicy ToProto(const RestartPolicy& policy);

// What is out of range comes through: the rules refuse it.
RestartPolicy FromProto(const v1::RestartPolicy& message);

}  // namespace ddprun
