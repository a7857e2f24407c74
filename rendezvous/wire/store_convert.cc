// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/wire/store_convert.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/version.h"
#include "rendezvous/base/limits.h"
#include "rendezvous/wire/fields.h"

namespace ddprun {

v1::StoreOp ToProto(StoreOp op) {
  v1::StoreOp message;
  message.set_verb(static_cast<v1::StoreOp::Verb>(op.verb));
  message.set_round(ToNumber(op.round));
  for (std::string& key : op.keys) *message.add_keys() = std::move(key);
  for (std::string& value : op.values) *message.add_values() = std::move(value);
  message.set_number(op.number);
  if (op.timeout.count() != 0) *message.mutable_timeout() = ToDuration(op.timeout);
  return message;
}

absl::StatusOr<StoreOp> FromProto(v1::StoreOp message) {
  if (message.verb() <= v1::StoreOp::VERB_UNSPECIFIED || message.verb() > v1::StoreOp::Verb_MAX) {
    return absl::InvalidArgumentError(
        absl::StrCat("store verb ", static_cast<int>(message.verb()),
                     " is not known to this version; install the same "
                     "ddprun on all nodes"));
  }
  StoreOp op;
  op.verb = static_cast<StoreVerb>(message.verb());
  op.round = RoundId{message.round()};
  op.keys.reserve(static_cast<std::size_t>(message.keys_size()));
  for (std::string& key : *message.mutable_keys()) op.keys.push_back(std::move(key));
  op.values.reserve(static_cast<std::size_t>(message.values_size()));
  for (std::string& value : *message.mutable_values()) op.values.push_back(std::move(value));
  op.number = message.number();
  op.timeout = ToMilliseconds(message.timeout());
  return op;
}

DDPRUN_MESSAGE(StoreHello) {
  FIELD(run_id);
  FIELD(node_id);
  FIELD(stream);
  FIELD(unanswered);
  TEXT(space, kNameBytesMax);
  if constexpr (!LOADING) message.set_protocol_version(kProtocolVersion);
}

void AddTo(v1::StoreRequests* message, StoreBatch batch) {
  for (StoreRequest& request : batch.requests) {
    v1::StoreRequest* to = message->add_requests();
    to->set_id(request.id);
    if (request.op) {
      *to->mutable_op() = ToProto(*std::move(request.op));
    } else {
      to->mutable_cancel();
    }
  }
  message->mutable_answered()->Add(batch.answered.begin(), batch.answered.end());
}

StoreBatch FromProto(v1::StoreRequests message, std::vector<StoreReply>* refused) {
  StoreBatch batch;
  for (v1::StoreRequest& request : *message.mutable_requests()) {
    if (request.has_cancel()) {
      batch.requests.push_back({request.id(), std::nullopt});
      continue;
    }
    absl::StatusOr<StoreOp> op = absl::InvalidArgumentError(
        "a store request of a kind that this version does not know; install the same ddprun on all "
        "nodes");
    if (request.has_op()) op = FromProto(std::move(*request.mutable_op()));
    if (op.ok()) {
      batch.requests.push_back({request.id(), *std::move(op)});
    } else {
      StoreReply reply;
      reply.id = request.id();
      reply.result.status = op.status();
      refused->push_back(std::move(reply));
    }
  }
  batch.answered.assign(message.answered().begin(), message.answered().end());
  return batch;
}

v1::StoreReply ToProto(StoreReply reply) {
  StoreResult& result = reply.result;
  v1::StoreReply message;
  message.set_id(reply.id);
  message.set_code(static_cast<int>(result.status.code()));
  if (!result.status.ok()) message.set_message(ToUtf8(std::string(result.status.message())));
  for (const StoreValue& value : result.values) message.add_values(value.text());
  message.set_number(result.number);
  for (std::string& key : result.keys) *message.add_keys() = std::move(key);
  return message;
}

StoreReply FromProto(v1::StoreReply message) {
  StoreReply reply;
  reply.id = message.id();
  StoreResult& result = reply.result;
  if (message.code() != 0)
    result.status = absl::Status(StatusCodeOf(message.code()), message.message());
  result.values.reserve(static_cast<std::size_t>(message.values_size()));
  for (std::string& value : *message.mutable_values()) result.values.emplace_back(std::move(value));
  result.number = message.number();
  result.keys.reserve(static_cast<std::size_t>(message.keys_size()));
  for (std::string& key : *message.mutable_keys()) result.keys.push_back(std::move(key));
  return reply;
}

std::vector<StoreReply> FromProto(v1::StoreReplies message) {
  std::vector<StoreReply> replies;
  replies.reserve(static_cast<std::size_t>(message.replies_size()));
  for (v1::StoreReply& reply : *message.mutable_replies()) {
    replies.push_back(FromProto(std::move(reply)));
  }
  return replies;
}

}  // namespace ddprun
