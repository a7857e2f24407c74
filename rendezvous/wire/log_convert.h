// SPDX-License-Identifier: Apache-2.0
// Converts workers' output lines and subscriptions to messages and back. A line may have any bytes.
#pragma once

#include "absl/status/statusor.h"
#include "proto/ddprun.pb.h"
#include "rendezvous/membership/log_subscriptions.h"
#include "rendezvous/values/session_types.h"

namespace ddprun {

v1::LogLines ToProto(const LogLines& lines);
LogLines FromProto(const v1::LogLines& message);

v1::LogWatches ToProto(const LogWatches& watches);
LogWatches FromProto(const v1::LogWatches& message);

v1::WatchRunRequest ToProto(const RunQuestion& question, const std::string& run_id);
RunQuestion FromProto(const v1::WatchRunRequest& message);

v1::RunNews ToProto(const RunNews& news);
// INVALID_ARGUMENT: this version does not know the kind of message.
absl::StatusOr<RunNews> FromProto(const v1::RunNews& message);

}  // namespace ddprun
