// SPDX-License-Identifier: Apache-2.0
// Converts a run's status, and what its watchers ask and receive, to messages and back.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "proto/ddprun.pb.h"
#include "rendezvous/observe/log_subscriptions.h"
#include "rendezvous/membership/operator_rules.h"
#include "rendezvous/observe/run_status.h"

namespace ddprun {

v1::RunStatus ToProto(const RunStatus& value);
RunStatus FromProto(const v1::RunStatus& message);

v1::WatchRunRequest ToProto(const RunQuestion& question, const std::string& run_id);
RunQuestion FromProto(const v1::WatchRunRequest& message);

v1::InjectFaultRequest ToProto(const FaultRequest& request);
// Without `by` and `node`, which the service cleans itself.
FaultRequest FromProto(const v1::InjectFaultRequest& message);

v1::RunNews ToProto(const RunNews& news);
// INVALID_ARGUMENT: this version does not know the kind of message.
absl::StatusOr<RunNews> FromProto(const v1::RunNews& message);

}  // namespace ddprun
