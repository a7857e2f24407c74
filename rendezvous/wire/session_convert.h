// SPDX-License-Identifier: Apache-2.0
// Converts the reports and directives of a session to messages and back. Messages from the wire are
// checked for form (INVALID_ARGUMENT) and cut to the limits here; the cores decide whether they are
// allowed.
#pragma once

#include "absl/status/statusor.h"
#include "proto/ddprun.pb.h"
#include "rendezvous/values/session_types.h"

namespace ddprun {

v1::Report ToProto(const Report& report);
absl::StatusOr<Report> FromProto(const v1::Report& message);

v1::Directive ToProto(const Directive& directive);
absl::StatusOr<Directive> FromProto(const v1::Directive& message);

v1::LossReport ToProto(const LossReport& value);
LossReport FromProto(const v1::LossReport& message);

// Parts of the above, which the journal, the status and watchers also use.
v1::Join ToProto(const Join& value);
Join FromProto(const v1::Join& message);
v1::RoleWorkers ToProto(const RoleWorkers& value);
RoleWorkers FromProto(const v1::RoleWorkers& message);
v1::RoleRanks ToProto(const RoleRanks& value);
RoleRanks FromProto(const v1::RoleRanks& message);
v1::Progress ToProto(const Progress& value);
Progress FromProto(const v1::Progress& message);
v1::RankReport ToProto(const RankReport& value);
RankReport FromProto(const v1::RankReport& message);
v1::Start ToProto(const Start& value);
Start FromProto(const v1::Start& message);
v1::Preemption ToProto(const Preemption& preemption);
Preemption FromProto(const v1::Preemption& message);
v1::LogWatch ToProto(const LogWatch& value);
LogWatch FromProto(const v1::LogWatch& message);
v1::LogLines ToProto(const LogLines& value);
LogLines FromProto(const v1::LogLines& message);

}  // namespace ddprun
