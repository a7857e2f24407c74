// SPDX-License-Identifier: Apache-2.0
// What a worker writes to its agent's store socket.
#include "proto/ddprun.pb.h"
#include "rendezvous/wire/frame.h"
#include "rendezvous/wire/store_codec.h"
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
  v1::StoreRequests hello;
  hello.mutable_hello()->set_run_id("run");
  return {ToRequestFrame(1, RoundId{2}, op) + ToRequestFrame(2, RoundId{2}, op), ToFrame(hello),
          ToReplyFrames(StoreResult{}, {1, 2})[0]};
}

bool Try(std::string_view bytes) {
  const std::vector<std::string> messages = Messages(bytes, 65'536);
  Require(messages == Messages(bytes, 3), "frames are the same however they are cut");
  for (const std::string& message : messages) {
    std::vector<StoreRequest> fast;
    v1::StoreRequests requests;
    if (ReadRequests(message, &fast)) {
      Require(requests.ParseFromString(message), "the fast reader takes what protobuf takes");
      std::vector<StoreReply> refused;
      Require(FromProto(std::move(requests), &refused).requests == fast && refused.empty(),
              "both readers read the same");
    }
    std::vector<StoreReply> replies;
    (void)ReadReplies(message, &replies);
  }
  return !messages.empty();
}

}  // namespace ddprun::fuzz
