// SPDX-License-Identifier: Apache-2.0
// Converts store operations, batches and replies to messages and back.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "proto/ddprun.pb.h"
#include "rendezvous/values/store_types.h"

namespace ddprun {

v1::StoreOp ToProto(StoreOp op);
// INVALID_ARGUMENT: this version does not know the verb.
absl::StatusOr<StoreOp> FromProto(v1::StoreOp message);

v1::StoreHello ToProto(const StoreHello& hello);
StoreHello FromProto(const v1::StoreHello& message);

void AddTo(v1::StoreRequests* message, StoreBatch batch);
// Leaves malformed requests out and appends the reply to each to `refused`.
StoreBatch FromProto(v1::StoreRequests message, std::vector<StoreReply>* refused);

v1::StoreReply ToProto(StoreReply reply);
StoreReply FromProto(v1::StoreReply message);
std::vector<StoreReply> FromProto(v1::StoreReplies message);

}  // namespace ddprun
