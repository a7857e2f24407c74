// SPDX-License-Identifier: Apache-2.0
// Store operations, their batches and replies, as messages and back.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "proto/ddprun.pb.h"
#include "rendezvous/values/store_batch.h"

namespace ddprun {

v1::StoreOp ToProto(StoreOp op);
// INVALID_ARGUMENT: a verb that this version does not know.
absl::StatusOr<StoreOp> FromProto(v1::StoreOp message);

v1::StoreHello ToProto(const StoreHello& hello);
StoreHello FromProto(const v1::StoreHello& message);

void AddTo(v1::StoreRequests* message, StoreBatch batch);
// Malformed requests are left out; `refused` gets the reply to each.
StoreBatch FromProto(v1::StoreRequests message, std::vector<StoreReply>* refused);

v1::StoreReply ToProto(StoreReply reply);
StoreReply FromProto(v1::StoreReply message);
std::vector<StoreReply> FromProto(v1::StoreReplies message);

}  // namespace ddprun
