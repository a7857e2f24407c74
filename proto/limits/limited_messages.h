// SPDX-License-Identifier: Apache-2.0
// Makes gRPC call CheckParsedSize() before it parses a message from a peer. The generated code
// includes this, so that no message is parsed without it.
// Not #pragma once: the header is part of a precompiled one, which ccache may return with the time
// stamps of another copy of this file.
#ifndef DDPRUN_PROTO_LIMITED_MESSAGES_H_
#define DDPRUN_PROTO_LIMITED_MESSAGES_H_

#include <grpcpp/impl/codegen/proto_utils.h>

#include <optional>
#include <utility>

#include "proto/ddprun.pb.h"
#include "proto/limits/message_limits.h"

namespace ddprun {

// The reason if the last message on this thread was rejected for its size; returned once. gRPC
// reports it to the stream as a failed read, on the thread that has parsed the message.
std::optional<absl::Status> TakeSizeRefusal();

grpc::Status CheckParsedSize(const google::protobuf::Descriptor& type, grpc::ByteBuffer& bytes);

template <typename Message>
struct LimitedMessage {
  static grpc::Status Serialize(const Message& message, grpc::ByteBuffer* bytes, bool* own_bytes) {
    return grpc::GenericSerialize<grpc::ProtoBufferWriter, Message>(message, bytes, own_bytes);
  }
  static grpc::Status Deserialize(grpc::ByteBuffer* bytes, Message* message) {
    if (bytes != nullptr && bytes->Length() > kUncheckedBytes) {
      grpc::Status status = CheckParsedSize(*Message::descriptor(), *bytes);
      if (!status.ok()) {
        bytes->Clear();
        return status;
      }
    }
    return grpc::GenericDeserialize<grpc::ProtoBufferReader, Message>(bytes, message);
  }
};

}  // namespace ddprun

namespace grpc {

#define DDPRUN_LIMITED_MESSAGE(Name)                \
  template <>                                       \
  class SerializationTraits<ddprun::v1::Name, void> \
      : public ddprun::LimitedMessage<ddprun::v1::Name> {};

DDPRUN_LIMITED_MESSAGE(Report)
DDPRUN_LIMITED_MESSAGE(Directive)
DDPRUN_LIMITED_MESSAGE(LossReport)
DDPRUN_LIMITED_MESSAGE(LossAnswer)
DDPRUN_LIMITED_MESSAGE(StatusRequest)
DDPRUN_LIMITED_MESSAGE(StatusAnswer)
DDPRUN_LIMITED_MESSAGE(StopRunRequest)
DDPRUN_LIMITED_MESSAGE(StopRunAnswer)
DDPRUN_LIMITED_MESSAGE(DrainNodeRequest)
DDPRUN_LIMITED_MESSAGE(DrainNodeAnswer)
DDPRUN_LIMITED_MESSAGE(WatchRunRequest)
DDPRUN_LIMITED_MESSAGE(RunNews)
DDPRUN_LIMITED_MESSAGE(StoreRequests)
DDPRUN_LIMITED_MESSAGE(StoreReplies)
DDPRUN_LIMITED_MESSAGE(CopyReport)
DDPRUN_LIMITED_MESSAGE(JournalCopy)
DDPRUN_LIMITED_MESSAGE(PromoteRequest)
DDPRUN_LIMITED_MESSAGE(PromoteAnswer)

#undef DDPRUN_LIMITED_MESSAGE

}  // namespace grpc

#endif  // DDPRUN_PROTO_LIMITED_MESSAGES_H_
