// SPDX-License-Identifier: Apache-2.0
#include "proto/limits/limited_messages.h"

namespace ddprun {
namespace {

thread_local std::optional<absl::Status> refusal;

}  // namespace

std::optional<absl::Status> TakeSizeRefusal() { return std::exchange(refusal, std::nullopt); }

grpc::Status CheckParsedSize(const google::protobuf::Descriptor& type, grpc::ByteBuffer& bytes) {
  grpc::ProtoBufferReader reader(&bytes);
  if (!reader.status().ok()) return reader.status();
  absl::Status status = CheckParsedSize(type, reader);
  if (status.ok()) return grpc::Status::OK;
  refusal = status;
  return {grpc::StatusCode::RESOURCE_EXHAUSTED, std::string(status.message())};
}

}  // namespace ddprun
