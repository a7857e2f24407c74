// SPDX-License-Identifier: Apache-2.0
// Converts failures, worker ends and verdicts to messages and back.
#pragma once

#include "proto/ddprun.pb.h"
#include "rendezvous/values/session_types.h"

namespace ddprun {

v1::WorkerEnds::Kind ToProto(EndKind kind);
EndKind FromProto(v1::WorkerEnds::Kind kind);
v1::Failure ToProto(const Failure& from);
Failure FromProto(const v1::Failure& from);
v1::WorkerOutcomes ToProto(const WorkerOutcomes& from);
WorkerOutcomes FromProto(const v1::WorkerOutcomes& from);
v1::Verdict ToProto(const Verdict& from);
Verdict FromProto(const v1::Verdict& from);
// A verdict as a node or a command accepts it from the service: exit code 0 only for a success or a
// drained node, and otherwise a code that a process can have, whatever was sent.
Verdict FromService(const v1::Verdict& message);

}  // namespace ddprun
