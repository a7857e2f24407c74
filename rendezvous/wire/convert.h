// SPDX-License-Identifier: Apache-2.0
// Plain values to messages and back: the only file of the room that knows both. What comes from the
// wire is checked here for form (INVALID_ARGUMENT), cut to the limits, and judged nowhere but in
// the cores.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/ddprun.pb.h"
#include "rendezvous/values/session_types.h"
#include "rendezvous/values/store_batch.h"

namespace ddprun {

// Whatever the message has: it is cut so that adding it to a time cannot overflow.
std::chrono::milliseconds ToMilliseconds(const google::protobuf::Duration& from);
// Strings of the wire must be UTF-8, and a worker's words need not be: what is not printable ASCII
// and not part of a well-formed sequence becomes '?'.
std::string ToUtf8(const std::string& text);

v1::Report ToProto(const Report& report);
absl::StatusOr<Report> FromProto(const v1::Report& message);

// Of a report or a directive, or kept by themselves in a journal.
v1::Join ToProto(const Join& join);
Join FromProto(const v1::Join& message);
v1::Progress ToProto(const Progress& progress);
Progress FromProto(const v1::Progress& message);
v1::Failure ToProto(const Failure& failure);
Failure FromProto(const v1::Failure& message);
v1::WorkerOutcomes ToProto(const WorkerOutcomes& victims);
WorkerOutcomes FromProto(const v1::WorkerOutcomes& message);
v1::Start ToProto(const Start& start);
Start FromProto(const v1::Start& message);
v1::Verdict ToProto(const Verdict& verdict);
Verdict FromProto(const v1::Verdict& message);
// As a node or a command takes it from a service: whatever was sent, only a success, or a node that
// left as it was asked to, exits with 0, and nothing with a code that a process cannot have.
Verdict FromService(const v1::Verdict& message);

v1::LossReport ToProto(const LossReport& report);
LossReport FromProto(const v1::LossReport& message);

v1::Directive ToProto(const Directive& directive);
absl::StatusOr<Directive> FromProto(const v1::Directive& message);

v1::StoreOp ToProto(StoreOp op);
absl::StatusOr<StoreOp> FromProto(v1::StoreOp message);

v1::StoreHello ToProto(const StoreHello& hello);
StoreHello FromProto(const v1::StoreHello& message);

void AddTo(v1::StoreRequests* message, StoreBatch batch);
// Requests that have not the form of one are left out, and what is wrong with each is in `refused`.
StoreBatch FromProto(v1::StoreRequests message, std::vector<StoreReply>* refused);

v1::StoreReply ToProto(StoreReply reply);
StoreReply FromProto(v1::StoreReply message);
std::vector<StoreReply> FromProto(v1::StoreReplies message);

}  // namespace ddprun
