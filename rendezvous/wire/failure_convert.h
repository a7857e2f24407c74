// SPDX-License-Identifier: Apache-2.0
// Converts failures, worker ends and verdicts to messages and back.
#pragma once

#include "proto/ddprun.pb.h"
#include "rendezvous/values/session_types.h"

namespace ddprun {

v1::RankTime ToProto(const RankTime& value);
RankTime FromProto(const v1::RankTime& message);
v1::Collective ToProto(const Collective& value);
Collective FromProto(const v1::Collective& message);
v1::RanksInPlace ToProto(const RanksInPlace& value);
RanksInPlace FromProto(const v1::RanksInPlace& message);
v1::Failure ToProto(const Failure& value);
Failure FromProto(const v1::Failure& message);
v1::WorkerOutcomes ToProto(const WorkerOutcomes& value);
WorkerOutcomes FromProto(const v1::WorkerOutcomes& message);
v1::Verdict ToProto(const Verdict& value);
Verdict FromProto(const v1::Verdict& message);
// A verdict as a node or a command accepts it from the service: exit code 0 only for a success or a
// drained node, and otherwise a code that a process can have, whatever was sent.
Verdict FromService(const v1::Verdict& message);

}  // namespace ddprun
