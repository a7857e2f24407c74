// SPDX-License-Identifier: Apache-2.0
// What an agent sends to the service's store.
#include "proto/ddprun.pb.h"
#include "proto/limits/message_limits.h"
#include "rendezvous/wire/store_convert.h"
#include "tests/fuzz/fuzz.h"

namespace ddprun::fuzz {
std::vector<std::string> Seeds() {
  StoreOp op;
  op.verb = StoreVerb::kSet;
  op.keys = {"key"};
  op.values = {"value"};
  StoreBatch batch;
  batch.requests = {{1, op}, {2, op}, {3, std::nullopt}};
  batch.answered = {4, 5};
  v1::StoreRequests requests;
  AddTo(&requests, batch);
  v1::StoreRequests hello;
  *hello.mutable_hello() = ToProto(StoreHello{.run_id = "run", .node_id = "node"});
  return {requests.SerializeAsString(), hello.SerializeAsString()};
}

bool Try(std::string_view bytes) {
  v1::StoreRequests requests;
  const std::string message(bytes);
  if (!CheckParsedSize(*requests.GetDescriptor(), message).ok()) return false;
  if (!requests.ParseFromString(message)) return false;
  std::vector<StoreReply> refused;
  const StoreBatch batch = FromProto(std::move(requests), &refused);
  v1::StoreRequests written;
  AddTo(&written, batch);
  std::vector<StoreReply> refused_again;
  Require(FromProto(std::move(written), &refused_again) == batch && refused_again.empty(),
          "a batch is read as it was written");
  return true;
}

}  // namespace ddprun::fuzz
