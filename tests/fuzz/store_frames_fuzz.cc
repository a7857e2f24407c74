// SPDX-License-Identifier: Apache-2.0
// What a worker writes to its agent's store socket.
#include "proto/ddprun.pb.h"
#include "proto/limits/message_limits.h"
#include "rendezvous/wire/frame.h"
#include "rendezvous/wire/store_convert.h"
#include "tests/fuzz/fuzz.h"

namespace ddprun::fuzz {
namespace {

// The messages in `bytes`, which come in pieces of `piece` bytes.
std::vector<std::string> Messages(std::string_view bytes, std::size_t piece) {
  FrameReader reader;
  std::vector<std::string> messages;
  std::string_view message;
  while (!bytes.empty() && !reader.too_long()) {
    const std::size_t count = std::min(piece, bytes.size());
    bytes.copy(reader.Room(count).first, count);
    reader.Taken(count);
    bytes.remove_prefix(count);
    while (reader.Next(&message)) messages.emplace_back(message);
  }
  return messages;
}

}  // namespace

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
  return {ToFrame(requests) + ToFrame(requests), ToFrame(hello)};
}

bool Try(std::string_view bytes) {
  const std::vector<std::string> messages = Messages(bytes, 65'536);
  Require(messages == Messages(bytes, 3), "frames are the same however they are cut");
  for (const std::string& message : messages) {
    v1::StoreRequests requests;
    if (!CheckParsedSize(*requests.GetDescriptor(), message).ok()) continue;
    if (!requests.ParseFromString(message)) continue;
    std::vector<StoreReply> refused;
    const StoreBatch batch = FromProto(std::move(requests), &refused);
    v1::StoreRequests written;
    AddTo(&written, batch);
    std::vector<StoreReply> refused_again;
    Require(FromProto(std::move(written), &refused_again) == batch && refused_again.empty(),
            "a batch is read as it was written");
  }
  return !messages.empty();
}

}  // namespace ddprun::fuzz
